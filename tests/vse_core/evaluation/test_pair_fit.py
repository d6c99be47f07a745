"""The fit of pairs against loops over its definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vse_core.evaluation.pair_fit import PairFit, own_similarities

Images = list[list[float]]
values = st.integers(-8, 8).map(lambda number: number / 8)
splits = st.lists(st.lists(values, max_size=4), min_size=1, max_size=8).filter(any)


def tensors(images: Images) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([value for image in images for value in image]), torch.tensor([len(image) for image in images])


def naive_fits(images: Images, good: Images) -> list[float]:
    def mean(image: list[float]) -> float:
        return sum(image) / len(image)

    captions, means = [value for image in good for value in image], [mean(image) for image in good if image]
    return [
        min(
            sum(other <= value for other in captions) / len(captions),
            sum(other <= mean(image) + 1e-6 for other in means) / len(means),
        )
        for image in images
        for value in image
    ]


@given(splits, splits)
def test_the_fit_is_the_share_of_good_captions_or_images_below(images: Images, good: Images) -> None:
    fit = PairFit.of(*tensors(good), 0.05)
    assert fit.fits(*tensors(images)).tolist() == pytest.approx(naive_fits(images, good), abs=1e-6)


@given(splits, st.sampled_from([0.0, 0.05, 0.3, 0.9]))
def test_no_more_good_pairs_are_lost_than_may_be_and_as_many_as_can(good: Images, loss: float) -> None:
    fit = PairFit.of(*tensors(good), loss)
    fits = fit.fits(*tensors(good))
    lost = fits <= fit.threshold
    assert int(lost.sum()) <= loss * len(fits)
    next_worst = fits[~lost].min()
    assert int((fits <= next_worst).sum()) > int(loss * len(fits))


def test_one_wrong_caption_and_an_image_with_wrong_captions_alone_are_both_told() -> None:
    generator = torch.Generator().manual_seed(0)
    good = 0.5 + 0.1 * torch.randn(1000, 5, generator=generator)
    fit = PairFit.of(good.flatten(), torch.full((1000,), 5), 0.05)
    images = torch.tensor([[0.5, 0.5, 0.1, 0.5, 0.5], [0.38, 0.36, 0.37, 0.38, 0.36], [0.5, 0.4, 0.6, 0.5, 0.45]])
    misfits = fit.fits(images.flatten(), torch.full((3,), 5)) <= fit.threshold
    assert misfits.reshape(3, 5).int().tolist() == [[0, 0, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]


def test_similarities_to_the_own_image_are_those_of_its_best_view() -> None:
    generator = torch.Generator().manual_seed(1)
    images_BKD, texts_CD = torch.randn(3, 2, 4, generator=generator), torch.randn(5, 4, generator=generator)
    owners = [0, 0, 2, 2, 2]
    expected = [
        max(sum(float(a * b) for a, b in zip(view, text, strict=True)) for view in images_BKD[owner])
        for owner, text in zip(owners, texts_CD, strict=True)
    ]
    found = own_similarities(images_BKD, texts_CD, torch.tensor([2, 0, 3]))
    assert found.tolist() == pytest.approx(expected, abs=1e-5)

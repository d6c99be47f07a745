"""The fit of pairs against loops over its definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vse_core.evaluation.pair_fit import GoodPairs, PairFit, own_similarities

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


@st.composite
def counted(draw: st.DrawFn) -> list[list[tuple[float, bool]]]:
    return draw(st.lists(st.lists(st.tuples(values, st.booleans()), max_size=4), min_size=1, max_size=6).filter(any))


@given(counted(), splits, st.sampled_from([0.0, 0.3]))
def test_images_are_judged_by_the_captions_that_count_next_to_as_many_of_good_ones(
    images: list[list[tuple[float, bool]]], good: Images, loss: float
) -> None:
    expected: list[tuple[float, bool]] = []
    for image in images:
        of_image = [value for value, is_counted in image if is_counted] or [value for value, _ in image]
        standard = [others[: len(of_image)] for others in good]
        threshold = PairFit.of(*tensors(standard), loss).threshold if image else 0.0
        captions = [value for others in standard for value in others]
        means = [sum(others) / len(others) for others in standard if others]
        for value, _ in image:
            by_mean = sum(other <= sum(of_image) / len(of_image) + 1e-6 for other in means) / len(means)
            fit = min(sum(other <= value for other in captions) / len(captions), by_mean)
            expected.append((fit, fit <= threshold + 1e-6))
    is_counted_C = torch.tensor([is_counted for image in images for _, is_counted in image])
    sims_C, counts_B = tensors([[value for value, _ in image] for image in images])
    fits, is_misfit = GoodPairs(*tensors(good), loss).judge(sims_C, counts_B, is_counted_C)
    assert fits.tolist() == pytest.approx([fit for fit, _ in expected], abs=1e-6)
    assert is_misfit.tolist() == [misfit for _, misfit in expected]


@pytest.mark.parametrize("captions", [1, 2, 5])
def test_as_many_good_captions_are_named_whatever_their_number_is(captions: int) -> None:
    """The mean of one caption scatters more than the means of five that it would be compared with."""
    generator = torch.Generator().manual_seed(0)
    of_captions, of_images = (0.1 * torch.randn(2, 4000, number, generator=generator) for number in (5, 1))
    good, others = of_captions + of_images
    standard = GoodPairs(good.flatten(), torch.full((4000,), 5), 0.05)
    sims_C = others[:, :captions].flatten()
    _, is_misfit_C = standard.judge(sims_C, torch.full((4000,), captions), torch.ones(len(sims_C), dtype=torch.bool))
    assert float(is_misfit_C.float().mean()) == pytest.approx(0.05, abs=0.007)


def test_what_is_not_a_number_fits_badly() -> None:
    """In the order of numbers it would come last, as the most similar."""
    standard = GoodPairs(torch.rand(100), torch.full((20,), 5), 0.05)
    sims_C = torch.tensor([0.9, torch.nan, 0.9, 0.9, 0.9] + [0.9] * 5)
    fits_C, is_misfit_C = standard.judge(sims_C, torch.tensor([5, 5]), torch.ones(10, dtype=torch.bool))
    assert is_misfit_C[1]
    assert not is_misfit_C[5:].any()
    assert fits_C.isfinite().all()


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

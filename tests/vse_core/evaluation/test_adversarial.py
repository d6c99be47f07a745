"""Retrieval under attack, against a Python sort of every image's own list of candidates."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vse_core.evaluation.ranks as ranks_module
from tests.vse_core.evaluation.naive import naive_ranks
from vse_core.evaluation.adversarial import AttackProtocol, evaluate_attack
from vse_core.evaluation.recall import evaluate_retrieval


def naive_attack(
    images: np.ndarray, texts: np.ndarray, counts: list[int], attacks: np.ndarray, attack_counts: list[int], own: bool
) -> tuple[list[int], int]:
    """0-based rank of each image's best caption, and how many images have a tie between true and false."""
    caption_image = [image for image, count in enumerate(counts) for _ in range(count)]
    attack_image = [caption_image[caption] for caption, count in enumerate(attack_counts) for _ in range(count)]
    ranks, ties = [], 0
    for image, views in enumerate(images):
        met = [text for text, owner in zip(attacks, attack_image, strict=True) if owner == image or not own]
        scores = [max(float(view @ text) for view in views) for text in (*texts, *met)]
        found = naive_ranks(scores, [caption for caption, owner in enumerate(caption_image) if owner == image])
        ranks.append(found.rank)
        ties += found.tied
    return ranks, ties


@settings(max_examples=120)
@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    views=st.integers(1, 3),
    levels=st.integers(1, 4),
    chunk=st.sampled_from([1, 40, 100, 10**6]),
    protocol=st.sampled_from(["shared", "own"]),
    data=st.data(),
)
def test_ranks_are_those_of_a_sort(
    counts: list[int], views: int, levels: int, chunk: int, protocol: AttackProtocol, data: st.DataObject
):
    captions = sum(counts)
    attack_counts = data.draw(st.lists(st.integers(0, 3), min_size=captions, max_size=captions))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    # Small integers make exact ties, in any order of summation.
    images = rng.integers(0, levels, (len(counts), views, 3)).astype(np.float32)
    texts, attacks = (rng.integers(0, levels, (rows, 3)).astype(np.float32) for rows in (captions, sum(attack_counts)))
    ranks, ties = naive_attack(images, texts, counts, attacks, attack_counts, protocol == "own")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks_module, "CHUNK_ELEMENTS", chunk)
        patch.setattr(ranks_module, "FEWEST_QUERIES", 1)
        tensors = (torch.from_numpy(array) for array in (images, texts, attacks))
        image_tensor, text_tensor, attack_tensor = tensors
        result = evaluate_attack(image_tensor, text_tensor, counts, attack_tensor, attack_counts, protocol)
    found = result
    for k, recall in ((1, found.r01), (5, found.r05), (10, found.r10)):
        assert recall == pytest.approx(100 * sum(rank < k for rank in ranks) / len(ranks))
    assert found.mean_rank == pytest.approx(np.mean(ranks) + 1)
    assert found.median_rank == np.floor(np.median(ranks)) + 1
    assert found.ties == ties


def unit(*shape: int, seed: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


@pytest.mark.parametrize("protocol", ["shared", "own"])
def test_without_adversarials_it_is_ordinary_retrieval(protocol: AttackProtocol):
    images, texts = unit(9, 2, 8, seed=0), unit(45, 8, seed=1)
    result = evaluate_attack(images, texts, 5, torch.empty(0, 8), 0, protocol)
    assert result == evaluate_retrieval(images, texts).image_to_text


@pytest.mark.parametrize("protocol", ["shared", "own"])
@pytest.mark.parametrize("each", [1, 5])
def test_a_model_blind_to_the_attack_gains_nothing(protocol: AttackProtocol, each: int):
    # Wide vectors and odd numbers of rows: the products are not exact, yet every adversarial ties with its caption.
    images = unit(7, 1, 300, seed=2)
    texts = images.squeeze(1).repeat_interleave(3, dim=0)
    assert evaluate_retrieval(images, texts, 3).image_to_text.r01 == 100
    result = evaluate_attack(images, texts, 3, texts.repeat_interleave(each, dim=0), each, protocol)
    assert result.r01 == 0
    assert result.ties == 7
    assert result.r10 == (100 if each == 1 else 0)


@pytest.mark.parametrize(
    ("attacks", "per_caption", "protocol", "message"),
    [
        (9, 1, "shared", "9 adversarial captions of 10 captions do not fit"),
        (10, [1] * 9 + [2], "shared", "11 in all"),
        (10, [1] * 5, "own", "5 counts"),
        (10, [-1, 2] * 2 + [1] * 6, "own", "none may be below 0"),
    ],
)
def test_misfits_are_refused(attacks: int, per_caption: int | list[int], protocol: AttackProtocol, message: str):
    with pytest.raises(ValueError, match=message):
        evaluate_attack(torch.ones(2, 1, 3), torch.ones(10, 3), 5, torch.ones(attacks, 3), per_caption, protocol)

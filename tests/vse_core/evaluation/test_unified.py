"""Mean average precision, against loops over thresholds, and its expectation, against all permutations."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vse_core.evaluation.ranks as ranking
from vse_core.evaluation.ranks import RelevantItems
from vse_core.evaluation.unified import average_precisions, chance_average_precision, evaluate_unified


def naive_average_precision(scores: list[float], relevant: set[int]) -> float:
    """The area under the steps of precision over recall, threshold by threshold."""
    area, recall_before = 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        retrieved = {image for image, score in enumerate(scores) if score >= threshold}
        precision = len(retrieved & relevant) / len(retrieved)
        recall = len(retrieved & relevant) / len(relevant)
        area += (recall - recall_before) * precision
        recall_before = recall
    return area


def items(relevant: list[list[int]]) -> RelevantItems:
    pairs = [(query, image) for query, images in enumerate(relevant) for image in images]
    return RelevantItems.of_pairs(*torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).unbind(1), len(relevant))


@settings(max_examples=120)
@given(
    images=st.integers(1, 9),
    views=st.integers(1, 3),
    levels=st.integers(1, 5),
    chunk=st.sampled_from([1, 20, 10**6]),
    data=st.data(),
)
def test_average_precision_is_that_of_all_thresholds(
    images: int, views: int, levels: int, chunk: int, data: st.DataObject
):
    subsets = st.lists(st.integers(0, images - 1), min_size=1, unique=True)
    relevant = data.draw(st.lists(subsets, min_size=1, max_size=6))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    # Small integers make exact ties, in any order of summation.
    gallery = rng.integers(0, levels, (images, views, 3)).astype(np.float32)
    queries = rng.integers(0, levels, (len(relevant), 3)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "CHUNK_ELEMENTS", chunk)
        patch.setattr(ranking, "FEWEST_QUERIES", 1)
        found = average_precisions(torch.from_numpy(queries), torch.from_numpy(gallery), items(relevant))
        result = evaluate_unified(torch.from_numpy(queries), torch.from_numpy(gallery), items(relevant))
    expected = [
        naive_average_precision([max(float(view @ query) for view in image) for image in gallery], set(own))
        for query, own in zip(queries, relevant, strict=True)
    ]
    assert found.tolist() == pytest.approx(expected)
    assert result["map"] == pytest.approx(100 * sum(expected) / len(expected))
    assert (result["queries"], result["images"]) == (len(relevant), images)
    assert result["relevant_images"] == pytest.approx(np.mean([len(own) for own in relevant]))


def test_a_similarity_that_is_no_number_counts_against_the_model():
    gallery = torch.tensor([[1.0], [float("nan")], [0.5]])
    query = torch.ones(1, 1)
    for relevant, expected in ((1, 1 / 3), (0, 1 / 2)):
        found = average_precisions(query, gallery, items([[relevant]]))
        assert found.tolist() == pytest.approx([expected])


@pytest.mark.parametrize(("images", "relevant"), [(1, 1), (2, 1), (5, 1), (5, 3), (6, 6), (7, 2)])
def test_chance_is_the_mean_over_all_rankings(images: int, relevant: int):
    total, count = 0.0, 0
    for ranks in itertools.combinations(range(1, images + 1), relevant):
        total += sum((place + 1) / rank for place, rank in enumerate(ranks)) / relevant
        count += 1
    (found,) = chance_average_precision(torch.tensor([relevant]), images).tolist()
    assert found == pytest.approx(total / count)

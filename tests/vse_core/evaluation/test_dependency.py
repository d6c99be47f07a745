"""Dependencies resolved by the image, against loops over candidates."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vse_core.evaluation.dependency as dependency
from vse_core.evaluation.dependency import (
    Dependencies,
    candidate_similarities,
    evaluate_dependencies,
    find_adjectives,
    find_dependencies,
    image_contribution,
    other_images,
)

GIRL, SWEATER, BURGER, DOG = 10, 11, 12, 13
BLUE, WHITE = 20, 21
EAT, IN = 30, 31


def as_lists(found: Dependencies) -> list[tuple[int, list[tuple[int, ...]], list[tuple[int, ...]]]]:
    """Caption, candidates, and the correct ones among them, of each dependency."""
    rows = [tuple(row) for row in found.words_NW.tolist()]
    correct, first = found.correct_N.tolist(), found.first_G1.tolist()
    return [
        (caption, rows[start:end], [row for row, good in zip(rows[start:end], correct[start:end], strict=True) if good])
        for caption, start, end in zip(found.caption_G.tolist(), first, first[1:], strict=False)
    ]


def test_the_paper_s_example_has_six_candidates():
    caption = ([GIRL, SWEATER, BURGER], [(GIRL, EAT, BURGER), (GIRL, IN, SWEATER)])
    found = find_dependencies([([DOG], []), caption], "relations")
    eat = [(s, EAT, o) for s, o in itertools.permutations([GIRL, SWEATER, BURGER], 2)]
    within = [(s, IN, o) for s, o in itertools.permutations([GIRL, SWEATER, BURGER], 2)]
    assert as_lists(found) == [(1, eat, [(GIRL, EAT, BURGER)]), (1, within, [(GIRL, IN, SWEATER)])]
    assert found.skipped == 0


def test_an_adjective_may_belong_to_any_noun_and_to_several():
    captions = [
        ([GIRL, SWEATER, SWEATER], [(BLUE, SWEATER), (BLUE, SWEATER)]),
        ([DOG, GIRL, BURGER], [(WHITE, DOG), (WHITE, BURGER)]),
        ([DOG], [(WHITE, DOG)]),
        ([DOG, GIRL], [(WHITE, DOG), (WHITE, GIRL)]),
    ]
    found = find_dependencies(captions, "attributes")
    assert as_lists(found) == [
        (0, [(BLUE, GIRL), (BLUE, SWEATER)], [(BLUE, SWEATER)]),
        (1, [(WHITE, DOG), (WHITE, GIRL), (WHITE, BURGER)], [(WHITE, DOG), (WHITE, BURGER)]),
    ]
    assert found.skipped == 2


def test_a_relation_of_a_noun_to_itself_offers_no_choice():
    found = find_dependencies([([DOG, DOG], [(DOG, IN, DOG)]), ([DOG, GIRL], [(DOG, IN, DOG)])], "relations")
    assert as_lists(found) == []
    assert found.skipped == 2
    assert found.words_NW.shape == (0, 3)


def test_which_of_some_adjectives_a_noun_has():
    """What another caption of the image says is true as well, what is alike to it is left out."""
    red, gray, grey, big = 22, 23, 24, 25
    captions = [[(WHITE, DOG), (big, DOG)], [(grey, DOG), (big, GIRL)], [(WHITE, DOG)], [(red, DOG), (red, GIRL)]]
    colours, images = (WHITE, red, gray, grey), [0, 0, 1, 1]
    found = find_adjectives(captions, images, colours, lambda one, other: {one, other} == {gray, grey})
    every = [(colour, DOG) for colour in colours]
    assert as_lists(found) == [
        (0, [every[0], every[1], every[3]], [every[0], every[3]]),
        (1, [every[0], every[1], every[3]], [every[0], every[3]]),
        (2, every, every[:2]),
        (3, every, every[:2]),
        (3, [(colour, GIRL) for colour in colours], [(red, GIRL)]),
    ]
    assert find_adjectives(captions, images, [WHITE], lambda *_: False).skipped == 2


def test_a_noun_that_is_no_object_is_refused():
    with pytest.raises(ValueError, match=r"caption 1 has the component \(21, 13\), but only the nouns \[10\]"):
        find_dependencies([([DOG], []), ([GIRL], [(WHITE, DOG)])], "attributes")
    with pytest.raises(ValueError, match="caption 0 has the component"):
        find_dependencies([([GIRL], [(GIRL, EAT, BURGER)])], "relations")


@settings(max_examples=120)
@given(sizes=st.lists(st.integers(2, 6), min_size=1, max_size=8), levels=st.integers(1, 6), data=st.data())
def test_accuracy_chance_and_ties_are_counted(sizes: list[int], levels: int, data: st.DataObject):
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    groups = []
    for size in sizes:
        correct = rng.permutation(size) < rng.integers(1, size)
        groups.append((rng.integers(-levels, levels, size).astype(np.float32), correct))
    resolved, ties, chance = 0, 0, 0.0
    for scores, correct in groups:
        winners = [good for score, good in zip(scores, correct, strict=True) if score == max(scores)]
        resolved += all(winners)
        ties += any(winners) and not all(winners)
        chance += sum(correct) / len(correct)
    result = evaluate_dependencies(
        torch.from_numpy(np.concatenate([scores for scores, _ in groups])),
        torch.tensor([0, *np.cumsum(sizes)]),
        torch.from_numpy(np.concatenate([correct for _, correct in groups])),
    )
    assert result.accuracy == pytest.approx(100 * resolved / len(groups))
    assert result.chance == pytest.approx(100 * chance / len(groups))
    assert (result.dependencies, result.ties) == (len(groups), ties)


def test_a_collapsed_model_and_one_of_nan_resolve_nothing():
    first, correct = torch.tensor([0, 2, 5]), torch.tensor([True, False, False, True, False])
    assert vars(evaluate_dependencies(torch.zeros(5), first, correct))["ties"] == 2
    for value in (0.0, float("nan")):
        assert evaluate_dependencies(torch.full((5,), value), first, correct).accuracy == 0
    with pytest.raises(ValueError, match="there are no dependencies"):
        evaluate_dependencies(torch.zeros(0), torch.tensor([0]), torch.zeros(0, dtype=torch.bool))


@pytest.mark.parametrize("chunk", [1, 16, 10**6])
@pytest.mark.parametrize("views", [1, 3])
def test_scores_are_the_best_view_s(views: int, chunk: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dependency, "CHUNK_ELEMENTS", chunk)
    generator = torch.Generator().manual_seed(1)
    images, candidates = torch.randn(4, views, 5, generator=generator), torch.randn(9, 5, generator=generator)
    owners = torch.tensor([0, 0, 2, 3, 1, 1, 1, 3, 2])
    expected = [
        max(sum(a * b for a, b in zip(view, candidate, strict=True)) for view in images[owner].tolist())
        for candidate, owner in zip(candidates.tolist(), owners.tolist(), strict=True)
    ]
    assert candidate_similarities(images, candidates, owners).tolist() == pytest.approx(expected, abs=1e-5)
    if views == 1:
        flat = candidate_similarities(images.squeeze(1), candidates, owners)
        assert flat.tolist() == pytest.approx(expected, abs=1e-5)


def test_equal_candidates_tie_wherever_they_stand():
    generator = torch.Generator().manual_seed(2)
    candidate = torch.randn(1, 1024, generator=generator)
    scores = candidate_similarities(
        torch.randn(1, 1, 1024, generator=generator), candidate.expand(1003, -1), torch.zeros(1003, dtype=torch.long)
    )
    assert len(scores.unique()) == 1


@pytest.mark.parametrize("count", [2, 3, 50])
def test_every_image_gets_another_one(count: int):
    others = other_images(count).tolist()
    assert sorted(others) == list(range(count))
    assert all(image != other for image, other in enumerate(others))
    assert others == other_images(count).tolist()
    assert count < 50 or others != other_images(count, seed=1).tolist()


def test_regions_outside_the_mask_are_not_the_best():
    generator = torch.Generator().manual_seed(0)
    regions, candidates = torch.randn(4, 5, 3, generator=generator), torch.randn(9, 3, generator=generator)
    image_of_n, mask = torch.tensor([0, 3, 3, 1, 2, 2, 0, 1, 0]), torch.arange(5) < torch.tensor([[5], [1], [3], [2]])
    expected = [
        max(float(regions[image, place] @ candidates[row]) for place in range(5) if mask[image, place])
        for row, image in enumerate(image_of_n.tolist())
    ]
    assert candidate_similarities(regions, candidates, image_of_n, mask).tolist() == pytest.approx(expected)


def test_the_image_contributes_what_a_wrong_one_does_not():
    generator = torch.Generator().manual_seed(0)
    first, correct = torch.arange(0, 2001, 2), torch.tensor([True, False] * 1000)
    image = torch.arange(1000) // 4
    chance = torch.randn(2000, generator=generator)
    gain, interval = image_contribution(correct.float(), chance, first, correct, image)
    wrong = evaluate_dependencies(chance, first, correct).accuracy
    assert gain == pytest.approx(100 - wrong)
    # Of a share p of 1,000 independent dependencies the deviation is sqrt(p (1 - p) / 1000).
    deviation = (wrong * (100 - wrong) / 1000) ** 0.5
    assert (interval.high - interval.low) / (2 * 1.96) == pytest.approx(deviation, rel=0.1)
    assert interval.low < gain < interval.high
    blind, nothing = image_contribution(chance, chance, first, correct, image)
    assert (blind, nothing.low, nothing.high) == (0, 0, 0)


def test_a_contribution_of_few_among_many_images_has_an_interval():
    """Resamples without any of them say nothing."""
    first, correct = torch.arange(0, 7, 2), torch.tensor([True, False] * 3)
    wrong = torch.tensor([0.0, 1.0] * 3)
    gain, interval = image_contribution(correct.float(), wrong, first, correct, torch.tensor([10, 10, 999]))
    assert (gain, interval.low, interval.high) == (100, 100, 100)

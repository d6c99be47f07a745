"""Boxes and the choice of them, against single boxes done by hand, classes and boxes one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from preprocessing.features.butd import boxes as module
from preprocessing.features.butd.boxes import moved, overlaps, select_confident

BOXES = torch.tensor([[0, 0, 15, 31], [10, 5, 40, 25], [12, 6, 42, 20], [90, 90, 99, 99]], dtype=torch.float32)


def decoded(box: list[float], delta: list[float]) -> list[float]:
    """One box moved: its centre by parts of its sides, its sides by factors."""
    x1, y1, x2, y2 = box
    dx, dy, dw, dh = delta
    width, height = x2 - x1 + 1, y2 - y1 + 1
    x, y = x1 + width / 2 + dx * width, y1 + height / 2 + dy * height
    width, height = width * math.exp(dw), height * math.exp(dh)
    return [x - width / 2, y - height / 2, x + width / 2, y + height / 2]


def test_boxes_are_moved() -> None:
    deltas = torch.tensor(np.random.default_rng(0).normal(0, 0.5, (4, 4)), dtype=torch.float32)
    found = moved(BOXES, deltas)
    expected = [decoded(*pair) for pair in zip(BOXES.tolist(), deltas.tolist(), strict=True)]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-4)


def test_a_box_that_stays_keeps_its_centre_by_the_published_rules() -> None:
    """The original adds its edge to the width and does not take it away: 0 .. 15 becomes 0 .. 16."""
    assert moved(BOXES[:1], torch.zeros(1, 4)).tolist() == [[0, 0, 16, 32]]


def test_overlaps_count_pixels() -> None:
    """Oracle: sets of the pixels in boxes of whole coordinates."""

    def pixels(box: list[float]) -> set[tuple[int, int]]:
        x1, y1, x2, y2 = map(int, box)
        return {(x, y) for x in range(x1, x2 + 1) for y in range(y1, y2 + 1)}

    sets = [pixels(box) for box in BOXES.tolist()]
    expected = [[len(one & other) / len(one | other) for other in sets] for one in sets]
    np.testing.assert_allclose(overlaps(BOXES).numpy(), expected, rtol=1e-5)


def overlap(one: np.ndarray, other: np.ndarray) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0]) + 1
    height = min(one[3], other[3]) - max(one[1], other[1]) + 1
    shared = max(width, 0) * max(height, 0)
    areas = [(box[2] - box[0] + 1) * (box[3] - box[1] + 1) for box in (one, other)]
    return float(shared / (sum(areas) - shared))


def slow_nms(boxes: np.ndarray, scores: np.ndarray, limit: float) -> list[int]:
    kept: list[int] = []
    for candidate in np.argsort(-scores, kind="stable"):
        if all(overlap(boxes[candidate], boxes[other]) <= limit for other in kept):
            kept.append(int(candidate))
    return kept


def random_boxes(count: int, spread: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, spread, (count, 2))
    return np.concatenate([corners, corners + rng.uniform(20, 60, (count, 2))], axis=1).astype(np.float32)


def random_scores(count: int, classes: int, sharpness: float, seed: int) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, sharpness, (count, classes + 1))
    exponents = np.exp(logits)
    return (exponents / exponents.sum(1, keepdims=True))[:, :-1].astype(np.float32)


def chosen(boxes: list[torch.Tensor], scores: list[torch.Tensor], minimum: int, maximum: int) -> list[list[int]]:
    padded = (pad_sequence(values, batch_first=True, padding_value=0.5) for values in (boxes, scores))
    chosen_BN, counts_B = select_confident(*padded, [len(values) for values in boxes], minimum, maximum)
    return [chosen_N[:count].tolist() for chosen_N, count in zip(chosen_BN, counts_B, strict=True)]


@pytest.mark.parametrize(
    ("sharpness", "minimum", "maximum", "case"),
    [
        (2.0, 5, 40, "between"),
        (0.1, 5, 40, "few"),
        (2.0, 3, 6, "many"),
        (2.0, 8, 8, "fixed"),
        (0.3, 8, 8, "fixed"),
        (0.3, 60, 60, "all"),
    ],
)
@pytest.mark.parametrize("setting", [("_HIGHEST", 1024), ("_HIGHEST", 100), ("_HIGHEST", 10), ("_ROUNDS", 1)])
def test_the_rule_of_the_original(
    sharpness: float, minimum: int, maximum: int, case: str, setting: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By all scores, by the highest if they are enough, and step by step if not."""
    monkeypatch.setattr(module, *setting)
    if setting[1] == 1024 and case != "all":
        monkeypatch.delattr(module, "_kept_in_class")
    boxes, scores = random_boxes(40, 60, 0), random_scores(40, 7, sharpness, 1).round(2)
    confidence = np.zeros(40, np.float32)
    for number in range(7):
        kept = slow_nms(boxes, scores[:, number], 0.3)
        confidence[kept] = np.maximum(confidence[kept], scores[kept, number])
    sure = np.flatnonzero(confidence >= 0.2)
    if len(sure) < minimum:
        expected = np.argsort(-confidence, kind="stable")[:minimum]
    elif len(sure) > maximum:
        expected = np.argsort(-confidence, kind="stable")[:maximum]
    else:
        expected = sure
    (found,) = chosen([torch.from_numpy(boxes)], [torch.from_numpy(scores)], minimum, maximum)
    assert found == expected.tolist()
    cases = {"few": len(sure) < minimum, "many": len(sure) > maximum, "between": minimum <= len(sure) <= maximum}
    assert cases.get(case, True)
    assert len(found) == {"fixed": 8, "all": 40, "few": 5, "many": 6}.get(case, len(sure))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_images_together_are_images_alone(device: str) -> None:
    """Images of several numbers of proposals, equal scores among them, each against the same image by itself."""
    sizes = (40, 1, 25)
    boxes = [torch.from_numpy(random_boxes(size, 100, size)) for size in sizes]
    scores = [torch.from_numpy(random_scores(size, 7, 2.0, size)).mul(16).round().div(16) for size in sizes]
    found = chosen([each.to(device) for each in boxes], [each.to(device) for each in scores], 3, 24)
    assert found == [chosen([one], [of_one], 3, 24)[0] for one, of_one in zip(boxes, scores, strict=True)]

"""Confidence of hits against loops, and on data whose probabilities are known."""

import math

import pytest
import torch

from vse_core.evaluation.calibration import calibrate, calibration_error, hit_confidence


def test_confidence_is_the_chance_of_being_any_of_the_relevant_items() -> None:
    scores = [0.3, 0.1, -0.2]
    total = math.log(sum(math.exp(score / 0.1) for score in scores))
    share = math.exp(0.3 / 0.1) / sum(math.exp(score / 0.1) for score in scores)
    found = hit_confidence(torch.tensor([0.3]), torch.tensor([total]), 0.1, 5)
    assert found.item() == pytest.approx(1 - (1 - share) ** 5, abs=1e-5)


def test_the_error_is_that_of_a_loop_over_bins() -> None:
    generator = torch.Generator().manual_seed(0)
    confidence = torch.cat([torch.rand(500, generator=generator), torch.tensor([0.0, 1.0])])
    is_right = (torch.rand(502, generator=generator) < confidence**2).float()
    expected = 0.0
    for number in range(15):
        inside = [place for place, value in enumerate(confidence.tolist()) if min(int(value * 15), 14) == number]
        if inside:
            said = sum(float(confidence[place]) for place in inside) / len(inside)
            right = sum(float(is_right[place]) for place in inside) / len(inside)
            expected += len(inside) / len(confidence) * abs(said - right)
    assert calibration_error(confidence, is_right) == pytest.approx(expected, abs=1e-5)
    assert expected > 0.1


@pytest.mark.parametrize("temperature", [0.03, 0.1])
def test_the_temperature_that_made_the_scores_is_found(temperature: float) -> None:
    """The relevant item is drawn from the softmax of the scores: its temperature is the only calibrated one."""
    generator = torch.Generator().manual_seed(1)
    scores = 0.2 * torch.randn(4000, 30, generator=generator)
    drawn = torch.multinomial((scores / temperature).softmax(dim=1), 1, generator=generator)
    is_relevant = torch.zeros(4000, 30, dtype=torch.bool).scatter(1, drawn, 1)
    found = calibrate(scores, is_relevant, torch.arange(4000), 1)
    assert found.temperature == pytest.approx(temperature, rel=0.1)
    assert found.error < 0.03
    # Every second group is left out, as of many queries, or all are one.
    assert calibrate(scores, is_relevant, 2 * torch.arange(4000), 1).error == pytest.approx(found.error)
    assert calibrate(scores, is_relevant, torch.zeros(4000), 1).error < 0.03
    wrong = calibrate(scores, is_relevant.roll(1, 0), torch.arange(4000), 1)
    assert wrong.temperature > 3 * temperature, "hits that are right by chance deserve no confidence"

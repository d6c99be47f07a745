"""Which loss a step is trained with, and when a run on the plateau is given up."""

import pytest
from pydantic import TypeAdapter

from pipelines import loss_schedule
from pipelines.config_training import LossConfig
from pipelines.loss_schedule import LossSchedule
from vse_core.training.collapse import CollapseError

TRIPLET = {"name": "triplet", "margin": 0.2, "mask_same_image": False, "all_negatives": "3 steps"}


def schedule(**settings: object) -> LossSchedule:
    config: LossConfig = TypeAdapter(LossConfig).validate_python(settings)
    return LossSchedule(config, steps_per_epoch=10)


def test_a_hinge_begins_with_all_negatives() -> None:
    losses = schedule(**TRIPLET, reduction="sum")
    assert [losses.at(step).negatives for step in range(5)] == ["all"] * 3 + ["hardest"] * 2


def test_a_hinge_may_begin_with_the_hardest() -> None:
    assert schedule(**TRIPLET | {"all_negatives": "0 epochs"}, reduction="sum").at(0).negatives == "hardest"


@pytest.mark.parametrize(("reduction", "loss"), [("sum", 8 * 0.4), ("mean", 0.4)])
def test_the_plateau_is_counted_after_all_negatives(reduction: str, loss: float, monkeypatch) -> None:
    monkeypatch.setattr(loss_schedule, "COLLAPSE_PATIENCE", 3)
    losses = schedule(**TRIPLET, reduction=reduction)
    assert [losses.check(step, loss, pairs=8) for step in range(5)] == [0, 0, 0, 1, 2]
    with pytest.raises(CollapseError, match=r"loss\.all_negatives"):
        losses.check(5, loss, pairs=8)


def test_a_resumed_run_goes_on_counting(monkeypatch) -> None:
    monkeypatch.setattr(loss_schedule, "COLLAPSE_PATIENCE", 3)
    losses = schedule(**TRIPLET, reduction="mean")
    losses.resume(2)
    with pytest.raises(CollapseError):
        losses.check(5, 0.4, pairs=8)

"""Which loss a step is trained with, and when a run on the plateau is given up."""

from typing import Any, Literal

import pytest
import torch
from pydantic import TypeAdapter
from torch import nn

from pipelines.kinds import LossConfig
from pipelines.schema.losses import MarginLoss
from pipelines.training import schedules
from pipelines.training.schedules import LossSchedule
from vse_core import registry
from vse_core.losses.components import ComponentVectors, UnifiedOutput
from vse_core.losses.hierarchical import TextLevels, VideoLevels
from vse_core.losses.hinge import TripletLoss
from vse_core.training.collapse import CollapseError
from vse_core.training.state import Progress

TRIPLET = {"name": "triplet", "margin": 0.2, "mask_same_image": False, "all_negatives": "3 steps"}


def schedule(**settings: object) -> LossSchedule:
    config: LossConfig = TypeAdapter(LossConfig).validate_python(settings)
    return LossSchedule(config, steps_per_epoch=10)


def test_a_hinge_begins_with_all_negatives() -> None:
    losses = schedule(**TRIPLET, reduction="sum")
    assert [losses.at(step).negatives for step in range(5)] == ["all"] * 3 + ["hardest"] * 2


@pytest.mark.parametrize(("reduction", "loss"), [("sum", 8 * 0.4), ("mean", 0.4)])
def test_the_plateau_is_counted_after_all_negatives(reduction: str, loss: float, monkeypatch) -> None:
    monkeypatch.setattr(schedules, "COLLAPSE_PATIENCE", 3)
    losses = schedule(**TRIPLET, reduction=reduction)
    assert [losses.check(step, {"loss": loss}, pairs=8) for step in range(5)] == [0, 0, 0, 1, 2]
    with pytest.raises(CollapseError, match=r"loss\.all_negatives"):
        losses.check(5, {"loss": loss}, pairs=8)


# The soft bound's is margin + 0.01 ln 7, for the seven negatives.
@pytest.mark.parametrize(("bound", "loss"), [("joint", 0.4), ("journal", 0.2), ("journal_soft", 0.2194591)])
def test_the_plateau_is_that_of_the_configured_loss_on_equal_embeddings(bound: str, loss: float) -> None:
    config: LossConfig = TypeAdapter(LossConfig).validate_python(
        TRIPLET | {"name": "multi_view", "bound": bound, "reduction": "mean"}
    )
    assert config.plateau(batch_size=8) == pytest.approx(loss)
    vectors = torch.nn.functional.normalize(torch.ones(8, 4), dim=-1)
    total = LossSchedule(config, 10).at(5)(vectors.unsqueeze(1).expand(8, 3, 4), vectors, torch.arange(8)).total
    assert total.item() == pytest.approx(loss)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("bound", ["max", "avg", "up", "up_rough", "joint", "journal", "journal_soft"])
def test_collapse_is_recognised_with_every_bound(bound: str, reduction: str, monkeypatch) -> None:
    monkeypatch.setattr(schedules, "COLLAPSE_PATIENCE", 3)
    losses = schedule(**TRIPLET | {"name": "multi_view", "bound": bound, "reduction": reduction})
    vectors = torch.nn.functional.normalize(torch.ones(64, 4), dim=-1)
    total = losses.at(5)(vectors.unsqueeze(1).expand(64, 3, 4), vectors, torch.arange(64)).total.item()
    assert [losses.check(step, {"loss": total}, pairs=64) for step in (3, 4)] == [1, 2]
    with pytest.raises(CollapseError, match=rf"has stood at {total / (64 if reduction == 'sum' else 1):.4f}"):
        losses.check(5, {"loss": total}, pairs=64)


def test_a_resumed_run_goes_on_counting(monkeypatch) -> None:
    monkeypatch.setattr(schedules, "COLLAPSE_PATIENCE", 3)
    losses = schedule(**TRIPLET, reduction="mean")
    losses.resume(Progress(plateau_steps=2))
    with pytest.raises(CollapseError):
        losses.check(5, {"loss": 0.4}, pairs=8)


LEARNED = {"mask_same_image": False, "learned": True}


def test_a_loss_begins_with_what_one_of_the_same_parameters_has_learned() -> None:
    """The values are those of the parameters: the temperature is exp(-logit_scale)."""
    losses = schedule(name="sigmoid", **LEARNED)
    losses.start_from({"logit_scale": 3.0, "bias": -7.0})
    assert losses.state() == {"logit_scale": 3.0, "bias": -7.0}
    learned = losses.at(0).learned_values()
    assert learned["temperature"].item() == pytest.approx(0.0497871)
    assert learned["bias"].item() == -7


@pytest.mark.parametrize(
    "values", [{}, {"logit_scale": 3.0, "bias": -7.0}, {"scale": 3.0}], ids=["none", "sigmoid", "another loss"]
)
def test_a_loss_of_other_parameters_keeps_its_own_start(values: dict[str, float]) -> None:
    losses = schedule(name="infonce", temperature=0.07, **LEARNED)
    losses.start_from(values)
    assert losses.state()["logit_scale"] == pytest.approx(2.6592600)
    fixed = schedule(name="infonce", temperature=0.07, mask_same_image=False)
    fixed.start_from(values)
    assert fixed.state() == {}


class PluginSettings(MarginLoss):
    """A loss that learns; `size` is the number of its parameter's numbers."""

    name: Literal["plugin"]
    size: int = 1
    early: bool = False

    def options_at(self, step: int, steps_per_epoch: int) -> dict[str, Any]:
        options = super().options_at(step, steps_per_epoch)
        return options | {"early": self.early and options["negatives"] == "all"}


class PluginLoss(TripletLoss):
    """A triplet loss times what it has learned; with `early` it learns one number more."""

    def __init__(self, margin: float, negatives: Any, mask_same_image: bool, size: int, early: bool) -> None:
        super().__init__(margin, negatives, "mean", mask_same_image)
        self.inner = nn.Module()
        self.inner.factor = nn.Parameter(torch.ones(()) if size == 1 else torch.ones(size))
        if early:
            self.offset = nn.Parameter(torch.zeros(()))

    def total_and_parts(self, pairs: Any) -> Any:
        total, parts = super().total_and_parts(pairs)
        return total * self.inner.factor, parts


def plugin_schedule(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> LossSchedule:
    monkeypatch.setitem(registry._ADDED, "loss", {"plugin": PluginLoss})
    return LossSchedule(PluginSettings(**TRIPLET | {"name": "plugin"} | settings), steps_per_epoch=10)


def test_what_a_loss_learns_is_the_same_with_all_of_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = plugin_schedule(monkeypatch)
    early, late = losses.at(0), losses.at(3)
    assert (early.negatives, late.negatives) == ("all", "hardest")
    (parameter,) = losses.parameters()
    with torch.no_grad():
        parameter.fill_(2.0)
    vectors, ids = torch.nn.functional.normalize(torch.ones(4, 3), dim=-1), torch.arange(4)
    assert late(vectors.unsqueeze(1), vectors, ids).total.item() == pytest.approx(2 * 0.4)
    late(vectors.unsqueeze(1), vectors, ids).total.backward()
    assert parameter.grad is not None
    assert losses.state() == {"inner.factor": 2.0}
    losses.resume(Progress(learned={"inner.factor": 3.0}))
    assert [loss.inner.factor.item() for loss in (early, late)] == [3.0, 3.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 2}, r"the loss 'plugin' learns 'inner\.factor' of 2 numbers; a loss may learn single numbers: make"),
        ({"early": True}, r"learns inner\.factor, offset|learns offset, inner\.factor"),
    ],
    ids=["several numbers", "other parameters"],
)
def test_parameters_that_are_not_saved_are_refused(
    settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=message):
        plugin_schedule(monkeypatch, **settings)


VSE_C = {"name": "vse_c", "reduction": "sum", "adversarial_after": "0 epochs"}
HIERARCHICAL = {"name": "hierarchical", "reduction": "mean"}
UNIFIED = {
    "name": "unified",
    "component_weight": 0.5,
    "object_weight": 0.5,
    "attribute_weight": 0.5,
    "relation_weight": 1.0,
    "relations_after": "2 epochs",
    "object_negatives": 16,
    "attribute_negatives": 8,
    "relation_negatives": [2, 4, 2],
}


def collapsed_outputs(name: str, size: int) -> tuple:
    """What the models give for equal embeddings, with adversarial captions and a few components."""
    vectors = torch.nn.functional.normalize(torch.ones(size, 4), dim=-1)
    if name == "vse_c":
        return vectors.unsqueeze(1), vectors, vectors
    if name == "hierarchical":
        mask = torch.ones(size, 3, dtype=torch.bool)
        each = vectors.unsqueeze(1).expand(-1, 3, -1)
        return VideoLevels(vectors, each, each, mask), TextLevels(vectors, each, mask, each, mask)
    one = torch.zeros(1, dtype=torch.int64)
    components = ComponentVectors(vectors[:1].unsqueeze(1).expand(-1, 3, -1), one)
    regions = vectors.unsqueeze(1).expand(-1, 3, -1)
    has = torch.arange(size) == 0
    composed = vectors * has.unsqueeze(1)
    true = torch.full((size, 1), -1)
    return (
        UnifiedOutput(
            vectors.unsqueeze(1), regions, torch.ones(size, 3, dtype=torch.bool), vectors, composed, has,
            components, components, components, one, true,
        ),
    )  # fmt: skip


@pytest.mark.parametrize("own", [VSE_C, HIERARCHICAL, UNIFIED], ids=lambda own: own["name"])
def test_collapse_is_recognised_for_every_loss_with_a_plateau(own: dict, monkeypatch) -> None:
    monkeypatch.setattr(schedules, "COLLAPSE_PATIENCE", 3)
    losses = schedule(**TRIPLET | own)
    result = losses.at(30)(*collapsed_outputs(own["name"], 8), torch.arange(8))
    values = {"loss": result.total.item()} | {f"part/{name}": part.item() for name, part in result.parts.items()}
    assert [losses.check(step, values, pairs=8) for step in (2, 30, 31)] == [0, 1, 2]
    with pytest.raises(CollapseError):
        losses.check(32, values, pairs=8)

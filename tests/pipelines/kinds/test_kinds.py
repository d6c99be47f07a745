"""Kinds of models answer alike: their settings, builders and outputs go together."""

from pathlib import Path

import pytest

from pipelines.kinds import KINDS, dual_encoder, saved_kind, trained_kind
from pipelines.kinds.kind import ModelKind, TwoTowerKind
from tests.vse_core.losses.systems import OWN
from vse_core.losses import LOSSES
from vse_core.models.build import MODELS


@pytest.mark.parametrize("kind", [*KINDS, TwoTowerKind()], ids=lambda kind: kind.title)
def test_outputs_have_classes_where_they_are_no_embeddings(kind: ModelKind) -> None:
    assert kind.has_embeddings == (kind.output_types() is None)


def test_sides_that_go_together_have_a_model() -> None:
    pairs = {(kind.image, kind.text) for kind in KINDS if kind.text is not None}
    assert pairs | {(dual_encoder.NAME, dual_encoder.NAME)} == set(MODELS)


@pytest.mark.parametrize("name", OWN)
def test_a_kind_builds_the_loss_of_its_models(name: str) -> None:
    assert type(trained_kind(name).build_loss(name)) is OWN[name]


def test_the_losses_of_embeddings_are_those_of_two_towers() -> None:
    assert {type(trained_kind(name)) for name in LOSSES} == {TwoTowerKind}
    assert type(TwoTowerKind().build_loss("triplet", margin=0.1)) is LOSSES["triplet"]


def test_a_saved_model_names_its_kind(tmp_path: Path) -> None:
    for kind in KINDS:
        (tmp_path / "model.json").write_text('{"text": {"name": "%s"}}' % (kind.text or "bigru"))
        assert isinstance(saved_kind(tmp_path), type(kind) if kind.text else TwoTowerKind)

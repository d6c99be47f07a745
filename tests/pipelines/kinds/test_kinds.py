"""Kinds of models answer alike: their settings, builders and outputs go together."""

from pathlib import Path
from typing import get_args

import pytest

from pipelines.kinds import ImageEncoderConfig, TextEncoderConfig, known_kinds, saved_kind, trained_kind
from pipelines.kinds.kind import TWO_TOWERS, ModelKind
from vse_core.losses import LOSSES
from vse_core.models.build import MODELS


@pytest.mark.parametrize("kind", [*known_kinds(), TWO_TOWERS], ids=lambda kind: kind.title)
def test_outputs_have_classes_if_they_are_not_embeddings(kind: ModelKind) -> None:
    assert kind.has_embeddings == (kind.behaviour.output_types is None)


def test_sides_that_go_together_have_a_model() -> None:
    images, texts = (get_args(get_args(sides)[0]) for sides in (ImageEncoderConfig, TextEncoderConfig))
    names = {settings: get_args(settings.model_fields["name"].annotation)[0] for settings in (*images, *texts)}
    pairs = {(names[settings], settings.partner) for settings in images if settings.partner}
    assert pairs == {(settings.partner, names[settings]) for settings in texts if settings.partner} == set(MODELS)


def test_the_other_losses_are_those_of_two_towers() -> None:
    assert {name for name in LOSSES if trained_kind(name) is not TWO_TOWERS} == {kind.loss for kind in known_kinds()}


def test_a_saved_model_names_its_kind(tmp_path: Path) -> None:
    for kind in known_kinds():
        (tmp_path / "model.json").write_text('{"text": {"name": "%s"}}' % (kind.text or "bigru"))
        assert saved_kind(tmp_path) is (kind if kind.text else TWO_TOWERS)

"""The card of a model: every figure is one that a stage found, and nothing is claimed that nobody has said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.config import PipelineConfig, load_config
from pipelines.stages.model_card import DESCRIPTION_CHARACTERS, Evidence, description, model_card, pretrained

METRICS = {
    "rsum": 251.34,
    "rsum_low": 244.0,
    "rsum_high": 259.96,
    "i2t_r01": 21.0,
    "t2i_r10": 60.5,
    "t2i_r10_low": 58.0,
    "t2i_r10_high": 63.0,
    "attack/total": 12.0,
}


@pytest.fixture
def evidence() -> Evidence:
    counts = {"train": (1600, 8000, 2), "dev": (500, 2500, 0)}
    splits = {
        split: {
            "counts": {"images": images, "captions": captions},
            "set_aside": [{"reason": "truncated"}] * aside,
            "fingerprint": split[0] * 64,
        }
        for split, (images, captions, aside) in counts.items()
    }
    training = {"history": [{"rsum": 200.0}, {"rsum": 251.3}, {"rsum": 250.0}], "seconds": 1234.5}
    return Evidence(splits, training, METRICS, {"vse.seed": "7", "mlflow.source.git.commit": "abc123"})


def config(*overrides: str) -> PipelineConfig:
    return load_config(None, ["name=shop", *overrides])


def test_figures_are_those_of_the_stages(evidence: Evidence) -> None:
    card = model_card(config("training.epochs=3"), evidence)
    lines = card.splitlines()
    assert lines[0] == "# shop"
    assert "| RSUM | 251.3 (244.0 to 260.0) |" in lines
    assert "| image to text, R@1 | 21.0 |" in lines
    assert "| text to image, R@10 | 60.5 (58.0 to 63.0) |" in lines
    assert "Further protocols, in the run: attack." in lines
    assert "## Configuration" in lines
    assert "| `train` (training) | 1,600 | 8,000 | 2 | `tttttttttttttttt` |" in lines
    assert "| `dev` (selection and metrics) | 500 | 2,500 | 0 | `dddddddddddddddd` |" in lines
    assert "- epochs: 3, the best is 2" in lines
    assert "- begins with: random weights" in lines
    assert "- time: 1,234 s" in lines
    assert "- seed: `7`" in lines
    assert "- mlflow.source.git.commit: `abc123`" in lines


def test_what_the_project_made_itself_it_may_license(evidence: Evidence) -> None:
    card = model_card(config(), evidence)
    assert "- Data: Generated images and captions" in card
    assert "- Weights it builds on: Random weights" in card


def test_of_others_nothing_is_claimed(evidence: Evidence) -> None:
    """Neither data nor weights: whoever configures them says whose they are."""
    table = "dataset={format: table, tables: {train: /t.csv, dev: /d.csv}}"
    foreign = [table, "features={extractor: grid, weights: microsoft/resnet-50, random_seed: null}"]
    card = model_card(config(*foreign), evidence)
    assert "- Data: Not stated: set registry.card.data_licence in the configuration." in card
    assert "`microsoft/resnet-50`. Not stated: set registry.card.weights_licence in the configuration." in card
    said = ["data_licence=Ours.", "weights_licence=Apache-2.0.", "intended_use=Finding shoes."]
    card = model_card(config(*foreign, *(f"registry.card.{each}" for each in said)), evidence)
    assert "- Data: Ours." in card
    assert "- Weights it builds on: `microsoft/resnet-50`. Apache-2.0." in card
    assert "## Intended use\n\nFinding shoes." in card


@pytest.mark.parametrize(
    ("overrides", "weights"),
    [
        ([], []),
        (["features.random_seed=null"], ["tiny_resnet"]),
        (["model.text.word_vectors=/glove.txt"], ["glove.txt"]),
    ],
)
def test_pretrained_weights(overrides: list[str], weights: list[str]) -> None:
    assert [Path(name).name for name in pretrained(config(*overrides))] == weights


def test_a_description_fits_the_database() -> None:
    short = "# shop\n"
    assert description(short) == short
    long: Any = "# shop\n" + "\n".join(f"- line {number}" for number in range(1000))
    cut = description(long)
    assert DESCRIPTION_CHARACTERS - 100 < len(cut) <= DESCRIPTION_CHARACTERS
    *lines, _, last = cut.splitlines()
    assert lines == long.splitlines()[: len(lines)]
    assert "model_card.md" in last

"""The card of a model: every figure is one that a stage found, and nothing is claimed that nobody has said."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.config import CardConfig, load_config
from pipelines.stages.register import card as model_card
from pipelines.stages.register.card import DESCRIPTION_CHARACTERS, description

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


def test_metrics_have_their_intervals() -> None:
    lines = model_card.metrics_table(METRICS, "dev", 5)
    assert lines[0].startswith("On the split `dev`, mean of 5 folds, with 95 % intervals")
    assert "| RSUM | 251.3 (244.0 to 260.0) |" in lines
    assert "| image to text, R@1 | 21.0 |" in lines
    assert "| text to image, R@10 | 60.5 (58.0 to 63.0) |" in lines
    assert lines[-1] == "\nFurther protocols, in the run: attack."
    corrected = {f"{name}_corrected": 260.0 for name in METRICS if "_low" not in name and "_high" not in name}
    corrected |= {"i2t_calibration_error": 0.031, "t2i_calibration_error": 0.02}
    corrected |= {"rsum_corrected_low": 250.0, "rsum_corrected_high": 270.0}
    lines = model_card.metrics_table(METRICS | corrected, "dev", 1)
    assert "| metric | value | hubs corrected |" in lines
    assert lines[-1].endswith("confidence: 0.031 (image to text) and 0.020 (text to image).")
    assert "| RSUM | 251.3 (244.0 to 260.0) | 260.0 (250.0 to 270.0) |" in lines


def test_data_are_those_of_the_manifests() -> None:
    manifests = {
        split: {
            "counts": {"images": images, "captions": captions},
            "skipped": [{"reason": "truncated"}] * skipped + [{"reason": "empty", "caption_id": "7"}],
            "fingerprint": split[0] * 64,
        }
        for split, (images, captions, skipped) in {"train": (1600, 8000, 2), "dev": (500, 2500, 0)}.items()
    }
    lines = model_card.data_table(load_config(None).dataset, "grid", manifests)
    assert "| `train` (training) | 1,600 | 8,000 | 2 | 1 | `tttttttttttttttt` |" in lines
    assert "| `dev` (selection and metrics) | 500 | 2,500 | 0 | 1 | `dddddddddddddddd` |" in lines


def test_training_is_that_of_the_manifest() -> None:
    config = load_config(None, ["training.epochs=3"])
    manifest = {"history": [{"rsum": 200.0}, {"rsum": 251.3}, {"rsum": 250.0}], "seconds": 1234.5}
    lines = model_card.training_list(config.training, config.loss, config.model, manifest)
    assert {"- epochs: 3, the best is 2", "- begins with: random weights", "- time: 1,234 s"} <= set(lines)


BERT = "model.text={name: bert, weights: google/bert, learning_rate_factor: 0.1, pooling: {name: gpo}}"


@pytest.mark.parametrize(
    ("settings", "begins", "untrained"),
    [
        ((), "random weights", "untrained"),
        ((BERT,), "the pretrained text network `google/bert`, else random weights", "untrained"),
        (("model.text.word_vectors=/glove.txt",), "the word vectors `/glove.txt`, else random weights", "untrained"),
        (("training.initial=/model",), "the weights of an earlier model", "the earlier model as it is"),
    ],
)
def test_the_card_says_what_a_model_begins_with(settings: tuple[str, ...], begins: str, untrained: str) -> None:
    trained, kept = (load_config(None, [*settings, f"training.epochs={epochs}"]) for epochs in (2, 0))
    manifest = {"history": [{"rsum": 200.0}], "seconds": 1.0}
    lines = [model_card.training_list(each.training, each.loss, each.model, manifest) for each in (trained, kept)]
    assert f"- begins with: {begins}" in lines[0]
    assert lines[1] == [f"- weights: {begins}", f"- epochs: 0 ({untrained}): nothing was trained"]


def test_of_others_nothing_is_claimed() -> None:
    """Neither data nor weights: whoever configures them says whose they are."""
    assert model_card.licences(CardConfig(), "table", ["microsoft/resnet-50"]) == [
        "- Data: Not stated: set registry.card.data_licence in the configuration.",
        "- Weights it builds on: `microsoft/resnet-50`. Not stated: set registry.card.weights_licence in the "
        "configuration.",
    ]
    card = CardConfig(data_licence="Ours.", weights_licence="Apache-2.0.")
    assert model_card.licences(card, "table", ["microsoft/resnet-50"]) == [
        "- Data: Ours.",
        "- Weights it builds on: `microsoft/resnet-50`. Apache-2.0.",
    ]


def test_a_description_fits_the_database() -> None:
    short = "# shop\n"
    assert description(short) == short
    long: Any = "# shop\n" + "\n".join(f"- line {number}" for number in range(1000))
    cut = description(long)
    assert DESCRIPTION_CHARACTERS - 100 < len(cut) <= DESCRIPTION_CHARACTERS
    *lines, _, last = cut.splitlines()
    assert lines == long.splitlines()[: len(lines)]
    assert "model_card.md" in last

"""SugarCrepe, Winoground and ARO from files of the published forms, against the released metrics in plain Python."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from transformers import AutoModel, AutoProcessor

from pipelines.config import load_config
from pipelines.evaluation.pretrained import save_pretrained_model, zero_shot_config
from pipelines.evaluation.protocols import CHOICES
from pipelines.evaluation.protocols.choices import ChoiceInputs
from pipelines.inference.embedder import Embedder
from pipelines.inference.text_embedder import TextEmbedder
from pipelines.runtime.stage import StageError
from pipelines.stages.extract.identity import read_extractor
from preprocessing.datasets import DatasetError
from preprocessing.datasets.choices import BENCHMARKS
from preprocessing.features import TINY_RESNET, build_extractor
from tests.dual_encoders import write_dual_encoder
from tests.pipelines.tiny_bundle import write_tiny_bundle
from vse_core.evaluation.choices import image_correct, macro_accuracy, text_correct
from vse_core.models import load_model

NAMES = [f"{number:04}.jpg" for number in range(6)]
NOUNS = ("square", "circle", "star", "triangle", "dog", "cat")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bundle(tmp_path_factory.mktemp("choices"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of images of a few coloured fields."""
    (tmp_path / "images").mkdir()
    rng = np.random.default_rng(0)
    for name in NAMES:
        fields = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(np.kron(fields, np.ones((16, 16, 1), dtype=np.uint8))).save(tmp_path / "images" / name)
    return tmp_path


def captions(seed: int) -> Iterator[str]:
    draw = random.Random(seed)
    while True:
        yield f"a {draw.choice(NOUNS)} and {draw.randint(2, 9)} {draw.choice(NOUNS)}s near a {draw.choice(NOUNS)}"


def of_bundle(bundle: Path, folder: Path) -> ChoiceInputs:
    texts = TextEmbedder(load_model(bundle / "model"), bundle / "model")
    return ChoiceInputs(texts, build_extractor("grid", weights=TINY_RESNET, seed=0), folder, folder)


@cache
def embedder_of(bundle: Path) -> Embedder:
    return Embedder(bundle / "model", bundle / "extractor", device="cpu")


def naive(bundle: Path, images: Sequence[str], texts: Sequence[str]) -> list[list[float]]:
    """Similarities of images, by their files, with texts: each embedded by itself."""
    embedder = embedder_of(bundle)
    return [
        [float((embedder.embed_images([image])[0] @ embedder.embed_texts([text])[0]).max()) for text in texts]
        for image in images
    ]


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(folder / f"{name}_choices.parquet").to_pylist()
    return rows


def test_sugarcrepe_is_the_share_of_captions_above_their_negatives(bundle: Path, folder: Path) -> None:
    text = captions(1)
    expected = {}
    for subset in ("replace_rel", "swap_att"):
        entries = {
            str(n): {"filename": NAMES[n % 6], "caption": next(text), "negative_caption": next(text)} for n in range(14)
        }
        entries["3"]["negative_caption"] = entries["3"]["caption"]  # a tie, which is wrong
        (folder / f"{subset}.json").write_text(json.dumps(entries))
        correct = 0
        for entry in entries.values():
            pair = (entry["caption"], entry["negative_caption"])
            ((own, other),) = naive(bundle, [str(folder / "images" / entry["filename"])], pair)
            correct += own > other
        expected[subset] = 100 * correct / 14
    found = CHOICES["sugarcrepe"](of_bundle(bundle, folder))
    assert found.metrics["sugarcrepe/skipped"] == 0
    for subset, accuracy in expected.items():
        assert found.metrics[f"sugarcrepe/{subset}"] == pytest.approx(accuracy)
        low, high = (found.metrics[f"sugarcrepe/{subset}_{bound}"] for bound in ("low", "high"))
        assert 0 <= low < accuracy < high <= 100
    assert "sugarcrepe/add_obj" not in found.metrics
    assert [row["item"] for row in rows_of(folder, "sugarcrepe")[::14]] == ["replace_rel/0", "swap_att/0"]
    assert found.summary == "SugarCrepe " + ", ".join(f"{name} {value:.1f}" for name, value in expected.items())


def test_winoground_has_text_image_and_group_score(bundle: Path, folder: Path) -> None:
    text, draw = captions(2), random.Random(2)
    for name in NAMES:
        Image.open(folder / "images" / name).save(folder / "images" / f"{Path(name).stem}.png")
    entries: list[dict[str, Any]] = []
    for number in range(20):
        first, second = draw.sample([Path(name).stem for name in NAMES], 2)
        pair = {"caption_0": next(text), "caption_1": next(text)}
        entries.append({"id": number, "image_0": first, "image_1": second, **pair, "num_main_preds": 1})
    (folder / "examples.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    hits = {"text": 0, "image": 0, "group": 0}
    for entry in entries:
        images = [str(folder / "images" / f"{entry[f'image_{n}']}.png") for n in (0, 1)]
        s = naive(bundle, images, (entry["caption_0"], entry["caption_1"]))
        of_text, of_image = s[0][0] > s[0][1] and s[1][1] > s[1][0], s[0][0] > s[1][0] and s[1][1] > s[0][1]
        hits["text"] += of_text
        hits["image"] += of_image
        hits["group"] += of_text and of_image
    found = CHOICES["winoground"](of_bundle(bundle, folder))
    assert {name: found.metrics[f"winoground/{name}"] for name in hits} == {
        name: pytest.approx(100 * count / 20) for name, count in hits.items()
    }
    assert hits["text"] != hits["image"]


def test_aro_averages_over_relations_and_pairs_of_attributes_in_their_boxes(bundle: Path, folder: Path) -> None:
    text, draw = captions(3), random.Random(3)

    def entry(number: int, **group: Any) -> dict[str, Any]:
        box = {"bbox_x": draw.randint(0, 20), "bbox_y": draw.randint(0, 20), "bbox_w": 40, "bbox_h": 33}
        return {
            "image_path": NAMES[number % 6],
            **box,
            "true_caption": next(text),
            "false_caption": next(text),
            **group,
        }

    drawn = ["eating"] * 9 + ["behind"] * 5 + ["near"] * 4  # "near" is left out
    relations = [entry(n, relation_name=name) for n, name in enumerate(drawn)]
    pairs = [["blue", "old"]] * 25 + [["old", "blue"]] * 24  # the second has too few
    attributions = [entry(n, attributes=pair) for n, pair in enumerate(pairs)]
    (folder / "visual_genome_relation.json").write_text(json.dumps(relations))
    (folder / "visual_genome_attribution.json").write_text(json.dumps(attributions))

    def accuracy(entries: list[dict[str, Any]]) -> float:
        correct = []
        for case in entries:
            left, top = case["bbox_x"], case["bbox_y"]
            with Image.open(folder / "images" / case["image_path"]) as image:
                image.crop((left, top, left + 40, top + 33)).save(folder / "part.png")
            false, true = naive(bundle, [str(folder / "part.png")], (case["false_caption"], case["true_caption"]))[0]
            correct.append(np.argmax([false, true]) == 1)
        return 100 * float(np.mean(correct))

    groups = [[e for e in relations if e["relation_name"] == name] for name in ("eating", "behind")]
    found = CHOICES["aro"](of_bundle(bundle, folder))
    assert found.metrics["aro/relation"] == pytest.approx(np.mean([accuracy(group) for group in groups]))
    assert found.metrics["aro/attribution"] == pytest.approx(accuracy(attributions[:25]))
    assert len(rows_of(folder, "aro")) == 9 + 5 + 25


@pytest.mark.parametrize("model_type", ["clip", "siglip"])
def test_a_pretrained_dual_encoder_compares_as_transformers_does(folder: Path, model_type: str) -> None:
    text = captions(4)
    entries = {
        str(n): {"filename": NAMES[n], "caption": next(text), "negative_caption": next(text)} for n in range(len(NAMES))
    }
    (folder / "add_att.json").write_text(json.dumps(entries))
    texts = [entry[key] for entry in entries.values() for key in ("caption", "negative_caption")]
    weights = write_dual_encoder(folder / "weights", model_type, texts)
    config = zero_shot_config(load_config(None, [f"work_dir={folder}/work"]), str(weights))
    model = save_pretrained_model(config)
    inputs = ChoiceInputs(TextEmbedder(load_model(model), model), read_extractor(config.features), folder, folder)
    found = CHOICES["sugarcrepe"](inputs)

    network, processor = AutoModel.from_pretrained(weights).eval(), AutoProcessor.from_pretrained(weights)
    padding = "longest" if model_type == "clip" else "max_length"
    correct = 0
    for row, entry in zip(rows_of(folder, "sugarcrepe"), entries.values(), strict=True):
        with Image.open(folder / "images" / entry["filename"]) as image, torch.inference_mode():
            pair = [entry["caption"], entry["negative_caption"]]
            prepared = processor(text=pair, images=image, return_tensors="pt", padding=padding)
            if model_type == "siglip":
                del prepared["attention_mask"]  # which SigLIP's own tokenizer does not give
            output = network(**prepared)
            own, other = (output.image_embeds @ output.text_embeds.T)[0].tolist()
        assert row["similarities"] == pytest.approx([own, other], abs=5e-3)
        correct += row["similarities"][0] > row["similarities"][1]
    assert found.metrics["sugarcrepe/add_att"] == pytest.approx(100 * correct / len(entries))


def test_a_choice_without_its_image_is_skipped_with_the_reason(bundle: Path, folder: Path) -> None:
    (folder / "images" / NAMES[1]).write_bytes(b"no image")
    entries = {str(n): {"filename": NAMES[n], "caption": "a dog", "negative_caption": "a cat"} for n in range(3)}
    (folder / "add_obj.json").write_text(json.dumps(entries))
    found = CHOICES["sugarcrepe"](of_bundle(bundle, folder))
    assert found.metrics["sugarcrepe/skipped"] == 1
    reasons = [row["skipped"] for row in rows_of(folder, "sugarcrepe")]
    assert reasons == ["", f"{folder}/images/{NAMES[1]}: not an image in a known format", ""]
    for name in NAMES:
        (folder / "images" / name).write_bytes(b"no image")
    with pytest.raises(
        StageError, match=r"SugarCrepe: none of 3 images can be read, such as .*0000\.jpg: not an image"
    ):
        CHOICES["sugarcrepe"](of_bundle(bundle, folder))


def test_features_that_are_computed_elsewhere_are_refused(bundle: Path, folder: Path) -> None:
    inputs = ChoiceInputs(of_bundle(bundle, folder).texts, build_extractor("precomputed"), folder, folder)
    with pytest.raises(StageError, match=r"protocol sugarcrepe: .* computed elsewhere; the images of sugarcrepe need"):
        CHOICES["sugarcrepe"](inputs)


ENTRY = {"filename": NAMES[0], "caption": "a dog", "negative_caption": "a cat"}
BOX = {"bbox_x": 0, "bbox_y": 0, "bbox_w": 9, "bbox_h": 9}
CASE = {"image_path": NAMES[0], **BOX, "true_caption": "a", "false_caption": "b", "relation_name": "eating"}


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        ("sugarcrepe", "other.json", {}, r"SugarCrepe: .* has no add_obj\.json or add_att\.json or "),
        ("sugarcrepe", "add_obj.json", {}, "SugarCrepe: .* has no entry that is evaluated"),
        ("sugarcrepe", "add_obj.json", {"7": {}}, r"add_obj\.json: 7: the field 'caption' is missing"),
        ("sugarcrepe", "add_obj.json", {"7": {**ENTRY, "caption": " "}}, "7: the field 'caption' is empty"),
        ("sugarcrepe", "add_obj.json", {"7": {**ENTRY, "filename": "../x"}}, "not a path inside its folder"),
        (
            "sugarcrepe",
            "add_obj.json",
            {"7": {**ENTRY, "filename": "x.jpg"}},
            r"1 of 1 images are not there.*x\.jpg; put",
        ),
        ("aro", "visual_genome_relation.json", {}, "the top level is a dict, a list is needed"),
        ("aro", "visual_genome_relation.json", [{**CASE, "bbox_w": 0}], r"\[0\]: the box is 0 x 9 pixels"),
        ("aro", "visual_genome_relation.json", [{**CASE, "relation_name": "near"}], "no entry that is evaluated"),
        ("winoground", "examples.jsonl", "{", r"examples\.jsonl:1: not JSON"),
    ],
)
def test_damaged_benchmarks_are_refused(folder: Path, name: str, file: str, content: object, message: str) -> None:
    (folder / file).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(DatasetError, match=message):
        BENCHMARKS[name].choices(folder)


def test_a_box_outside_of_its_image_is_skipped(bundle: Path, folder: Path) -> None:
    cases = [CASE, {**CASE, "bbox_x": 64}]
    (folder / "visual_genome_relation.json").write_text(json.dumps(cases))
    assert CHOICES["aro"](of_bundle(bundle, folder)).metrics["aro/skipped"] == 1
    assert rows_of(folder, "aro")[1]["skipped"].endswith("lies outside of its 64 x 64 pixels")


def test_ties_and_what_is_no_number_are_wrong() -> None:
    assert text_correct(torch.tensor([[2.0, 1.0]]))
    for row in ([1.0, 1.0], [1.0, 2.0], [math.nan, 1.0], [1.0, math.nan]):
        assert not text_correct(torch.tensor([row]))
    sims_22 = torch.tensor([[3.0, 2.0], [3.0, 4.0]])
    assert text_correct(sims_22)
    assert not image_correct(sims_22)


def test_the_mean_of_groups_is_not_that_of_choices() -> None:
    value, interval = macro_accuracy([True, False, False, True], ["a", "a", "a", "b"], ["1", "2", "3", "4"])
    assert value == pytest.approx(100 * (1 / 3 + 1) / 2)
    assert interval.low < value <= interval.high


def test_choices_of_an_image_are_resampled_together() -> None:
    correct, groups = [True] * 20 + [False] * 20, ["a"] * 40
    _, apart = macro_accuracy(correct, groups, [str(choice) for choice in range(40)])
    _, together = macro_accuracy(correct, groups, [str(choice % 20 // 5) + str(choice // 20) for choice in range(40)])
    # Eight images of five choices each: the deviation is the root of five times as large.
    assert (together.high - together.low) / (apart.high - apart.low) == pytest.approx(5**0.5, rel=0.2)

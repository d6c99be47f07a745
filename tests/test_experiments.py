"""The page of the papers' experiments: it is up to date, and each of its commands plans on data of the named layout."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import runpy
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pipelines.config import PipelineConfig
from pipelines.evaluation import named_models
from pipelines.evaluation.named_models import NamedModel
from pipelines.paper_figures import draw
from pipelines.runtime.stage import StageReport
from pipelines.stages import preflight
from pipelines.stages.extract import plan as extract
from pipelines.tuning.space import check_space, load_search
from tests.preprocessing.datasets.hgr_files import NETWORK, write_hgr

ROOT = Path(__file__).resolve().parents[1]
SIZES = {"train": 30, "dev": 30, "test": 1000, "testall": 5000}
READ: set[tuple[str, ...]] = set()
FIRST_ID = {"train": 0, "dev": 10**4, "test": 10**5}
# Crisscrossed Captions: the columns of each file, and a pair.
RATINGS = {
    "sis": "image1,image2 COCO_val2014_000000100000.jpg,COCO_val2014_000000100001.jpg",
    "sts": "caption1,caption2 COCO_val2014:sentid:500000,COCO_val2014:sentid:500005",
    "sits": "caption,image COCO_val2014:sentid:500000,COCO_val2014_000000100001.jpg",
}


def experiments() -> ModuleType:
    """The script that writes the page."""
    spec = importlib.util.spec_from_file_location("experiments", ROOT / ".ci" / "experiments.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def every_command() -> list[str]:
    content = experiments().load()
    found = [
        command
        for paper in content["papers"]
        for experiment in paper["experiments"]
        for row in experiments().commands(experiment, content["data"]).values()
        for command in row
    ]
    return list(dict.fromkeys(found))


def test_the_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8") == experiments().page()


def test_every_figure_search_and_preset_of_the_papers_is_on_the_page() -> None:
    page = experiments().page()
    configurations = ROOT / "pipelines" / "config"
    searches = {path.name for path in (configurations / "searches").glob("*.yaml")}
    presets = {path.stem for path in (configurations / "presets").glob("[!_]*.yaml")}
    # Searches and presets of none of the papers; presets of released code or of other words instead of a table, and the
    # default of their configurations.
    assert {name for name in searches if name not in page} == {
        "flickr8k_parts.yaml",
        "learning_rate.yaml",
        "margin.yaml",
        "vse_2ad_temperature_margin.yaml",
    }
    assert {name for name in presets if f"preset={name} " not in page and f"preset={name}\n" not in page} == {
        "dual_encoder",
        "hgr_infty",
        "mv_vse_release",
        "small_data",
        "univse_matched",
        "vse_2ad_release",
        "vse_2ad_release_bert",
        "vse_c",
        "vse_infty_video",
    }
    assert [name for name in draw.FIGURES if f"figures.py {name} " not in page] == []


def captions_of(image: int) -> list[str]:
    colours, nouns = ("black", "white", "red"), ("dog", "cat", "girl", "horse", "car", "ball", "hat", "chair")
    one, other = f"{colours[image % 3]} {nouns[image % 8]}", f"{colours[image // 2 % 3]} {nouns[(image + 3) % 8]}"
    rest = "chases a {}", "sleeps on the {}", "and a man with a {}", "near the {} in a park", "without a {}"
    return [f"a {one} {words.format(other)}" for words in rest]


def write_published_features(folder: Path, largest: int) -> None:
    """Region features as SCAN released them: one row for an image, captions of five lines each."""
    folder.mkdir(parents=True)
    for split, images in SIZES.items():
        ids = range(FIRST_ID["test" if split == "testall" else split], 10**6)[:images][:largest]
        features = np.random.default_rng(len(split)).random((len(ids), 2, 4), dtype=np.float32)
        np.save(folder / f"{split}_ims.npy", features)
        (folder / f"{split}_ids.txt").write_text("".join(f"{number}\n" for number in ids))
        (folder / f"{split}_caps.txt").write_text(
            "".join(f"{text}\n" for number in ids for text in captions_of(number))
        )


def write_karpathy(path: Path, images: dict[str, int], largest: int) -> None:
    """One of Karpathy's files."""
    entries = [
        {"split": split, "imgid": number, "cocoid": number, "filename": f"{split}{number}.jpg"}
        for split, count in images.items()
        for number in range(FIRST_ID[split.replace("val", "dev")], 10**6)[:count][:largest]
    ]
    for entry in entries:
        texts = captions_of(entry["imgid"])
        entry["sentences"] = [{"sentid": 5 * entry["imgid"] + n, "raw": text} for n, text in enumerate(texts)]
    path.write_text(json.dumps({"images": entries}))
    (path.parent / "annotations").mkdir()
    labels = [{"image_id": entry["cocoid"], "category_id": 1} for entry in entries]
    objects = {"categories": [{"id": 1, "name": "dog"}], "annotations": labels}
    (path.parent / "annotations" / "instances_val2014.json").write_text(json.dumps(objects))


def write_data(folder: Path, largest: int = 10**6) -> None:
    """Small data sets in the layouts that the commands read, of the sizes that the protocols ask for or the largest."""
    for name, test in (("f30k", 1000), ("coco", 5000)):
        write_published_features(folder / name / "precomp", largest)
        (folder / name / "id_mapping.json").write_text("{}")
        (folder / name / "flickr30k-images").mkdir()
        images = folder / {"f30k": "flickr30k", "coco": "coco"}[name]
        (images / "flickr30k-images").mkdir(parents=True, exist_ok=True)
        write_karpathy(images / f"dataset_{images.name}.json", {"train": 30, "val": 30, "test": test}, largest)
    for name, videos in (("MSRVTT", 2990), ("VATEX", 1500)):
        counts = {"trn": 140, "val": {"MSRVTT": 497}.get(name, 1500), "tst": videos}
        captions = {
            split: {f"{split}{n}": captions_of(n) for n in range(count)[:largest]} for split, count in counts.items()
        }
        root = write_hgr(folder / name, captions)
        (root / "ordered_feature" / "SA" / NETWORK).rename(
            root / "ordered_feature" / "SA" / {"VATEX": "i3d.rgb"}.get(name, NETWORK)
        )
        (root / "annotation" / "RET" / "sent2rolegraph.augment.json").write_text("{}")
    (folder / "cxc").mkdir()
    for kind, pair in RATINGS.items():
        (folder / "cxc" / f"{kind}_test.csv").write_text(pair.replace(" ", ",agg_score\n") + ",4.5\n")
    glove = ("glove.42B.300d.txt", "glove.840B.300d.txt")
    for name in ("original_updown_backbone.pth", "ig_resnext101_32x8-c38310e5.pth", *glove):
        (folder / name).write_bytes(b"")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.mark.parametrize("command", every_command())
def test_every_command_plans(
    command: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"VSE_DATA": data, "VSE_WEIGHTS": data, "VSE_WORK_DIR": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.chdir(ROOT)
    # Neither the machine nor the weights of a hub are the commands' matter.
    monkeypatch.setattr(preflight, "_check_room", lambda config: None)
    monkeypatch.setattr(extract, "extractor_identity", lambda *_: {"some": "network"})
    monkeypatch.setattr(NamedModel, "find", lambda reference, config: NamedModel(reference, config, tmp_path))
    monkeypatch.setattr(named_models, "evaluate_models", planned_evaluation)
    monkeypatch.setattr(draw, "draw", planned_figure)
    monkeypatch.setattr(draw, "keep", lambda *_: [])
    _, script, *words = shlex.split(os.path.expandvars(command))
    if script.startswith("tests/"):
        assert (ROOT / script).is_file()
        return
    if Path(script).name not in ("evaluate.py", "figures.py"):
        words.append("--dry-run")
    assert exit_code(script, words, monkeypatch) == 0, capsys.readouterr().err


def exit_code(script: str, words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> object:
    """Run a command in this process."""
    monkeypatch.setattr(sys, "argv", [script, *words])
    monkeypatch.syspath_prepend(ROOT / "pipelines")
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(script, run_name="__main__")
    finally:
        signal.signal(signal.SIGTERM, before)
    return ended.value.code


def planned_evaluation(models: Sequence[NamedModel]) -> StageReport:
    """Check what an evaluation checks before it starts; data that other commands have read are not read again."""
    named_models.require_same_settings(models, "folds", "protocols", "cxc")
    key = tuple(str((named.config.dataset, named.config.evaluation)) for named in models)
    if key not in READ:
        named_models.require_same_items(models)
        for named in models:
            preflight.check_before_start(named.config)
        READ.add(key)
    return StageReport("evaluate", Path(), "planned")


def planned_figure(figure: draw.PaperFigure, config: PipelineConfig, options: argparse.Namespace) -> dict[str, bytes]:
    preflight.check_before_start(config)
    if figure.takes == "search":
        check_space(config, load_search(options.search))
    return {}

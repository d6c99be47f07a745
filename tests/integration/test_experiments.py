"""Rows of several kinds of docs/experiments.md, run to the end by its commands on made-up data in published formats."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from preprocessing.datasets.scenes import ScenesDataset, parse_scene_uri, render_scene
from tests.integration.test_video import made_videos, write_role_graphs
from tests.preprocessing.datasets.hgr_files import NETWORK, write_hgr
from tests.test_experiments import ROOT, exit_code, experiments
from vse_core.evaluation.protocols import RETRIEVAL_PROTOCOLS, VIDEO_PROTOCOLS

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("ray_cluster")]
IMAGES = {"train": 40, "dev": 20, "test": 20}
FIRST_ID = {"train": 1, "dev": 1001, "test": 2001}
KARPATHY = {"train": "train", "dev": "val", "test": "test"}
# Settings of the size of things: of every command, of trainings, of trainings by their configuration, of its features.
EVERY = ["features.gpus_per_actor=0", "training.gpus_per_worker=0", "training.batch_size=20"]
TRAINING = ["model.embed_dim=16", "model.text.word_dim=8", "vocabulary.min_count=1", "training.epochs=1"]
SMALL = {
    "coco_components.yaml": ["pools={min_nouns: 1, min_adjectives: 1, min_relations: 1}"],
    "vatex_hgr.yaml": ["model.text.graph_dropout=0"],
}
DATA = {"coco_components.yaml": ["features.weights=tiny_resnet", "features.random_seed=0"]}
# Kinds of rows -> of each the paper, the end of its name or the start of its experiment's, and which of its commands.
ROWS = {
    "regions and a figure of their model": [
        ("VSE-infinity", "VSE-infinity, regions, BiGRU", slice(0, 1)),
        ("VSE-infinity", "Figure 5", slice(0, 1)),
    ],
    "search": [("VSE-infinity", "Table 1", slice(0, 2))],
    "videos": [("VSE-infinity", "HGR-infinity, VATEX", slice(0, 2))],
    "components and attacks": [("UniVSE", "UniVSE", slice(0, 2))],
}


def write_coco(root: Path) -> None:
    """Photographs with Karpathy's file, regions as SCAN released them, and GloVe."""
    rng, entries, words = np.random.default_rng(0), [], set()
    (root / "coco" / "val2014").mkdir(parents=True)
    (root / "coco" / "precomp").mkdir()
    for split, records in ((split, ScenesDataset(0, IMAGES).records(split)) for split in IMAGES):
        features, captions = [], []
        for number, record in enumerate(records, start=FIRST_ID[split]):
            name = f"COCO_val2014_{number:012d}.jpg"
            texts = [caption.text for caption in record.captions][:5]
            image = Image.open(io.BytesIO(render_scene(*parse_scene_uri(record.image_uri))))
            image.convert("RGB").resize((64, 64)).save(root / "coco" / "val2014" / name)
            sentences = [{"sentid": 5 * number + place, "raw": text} for place, text in enumerate(texts)]
            entries.append(
                {"filepath": "val2014", "filename": name, "split": KARPATHY[split], "cocoid": number}
                | {"imgid": len(entries), "sentences": sentences}
            )
            features.append(rng.standard_normal((36, 12), dtype=np.float32))
            captions += texts
            words.update(word for text in texts for word in text.split())
        ids = range(FIRST_ID[split], FIRST_ID[split] + len(features))
        for name in [split, "testall"] if split == "test" else [split]:
            # Train has a row for each image, the others have five.
            rows = 1 if split == "train" else 5
            np.save(root / "coco" / "precomp" / f"{name}_ims.npy", np.repeat(features, rows, axis=0))
            lines = {"ids": np.repeat(ids, rows).tolist(), "caps": captions}
            for kind, content in lines.items():
                (root / "coco" / "precomp" / f"{name}_{kind}.txt").write_text("".join(f"{line}\n" for line in content))
    (root / "coco" / "dataset_coco.json").write_text(json.dumps({"images": entries, "dataset": "coco"}))
    vectors = (f"{word} {' '.join(f'{value:.3f}' for value in rng.standard_normal(8))}\n" for word in sorted(words))
    (root / "glove.840B.300d.txt").write_text("".join(vectors))


def write_vatex(root: Path) -> None:
    """Parts of videos with captions and role graphs as HGR released them, and GloVe."""
    sizes = {"trn": 60, "val": 20, "tst": 20}
    made = {split: made_videos(count, 1000 * place) for place, (split, count) in enumerate(sizes.items())}
    captions = {split: texts for split, (texts, _) in made.items()}
    folder = write_hgr(root / "VATEX", captions, {k: v for _, frames in made.values() for k, v in frames.items()})
    (folder / "ordered_feature" / "SA" / NETWORK).rename(folder / "ordered_feature" / "SA" / "i3d.rgb")
    write_role_graphs(folder, [texts for videos in captions.values() for texts in videos.values()])
    words = sorted(
        {word for videos in captions.values() for texts in videos.values() for word in " ".join(texts).split()}
    )
    (root / "glove.42B.300d.txt").write_text("".join(f"{word}{' 0.5' * 8}\n" for word in words))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, mlflow_template: Path) -> Iterator[Path]:
    """Data, weights and work directory of all rows, which share trainings; searches with two of their rows."""
    root = tmp_path_factory.mktemp("papers")
    write_coco(root)
    write_vatex(root)
    (root / "work").mkdir()
    shutil.copyfile(mlflow_template, root / "work" / "mlflow.db")
    path = ROOT / "pipelines" / "config" / "searches" / "vse_infty_aggregators.yaml"
    search = yaml.safe_load(path.read_text(encoding="utf-8"))
    search["rows"] = dict(list(search["rows"].items())[:2])
    (root / path.name).write_text(yaml.safe_dump(search, sort_keys=False))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"VSE_DATA": root, "VSE_WEIGHTS": root, "VSE_WORK_DIR": root / "work"}.items():
            patch.setenv(name, str(value))
        patch.chdir(ROOT)
        for protocols in (RETRIEVAL_PROTOCOLS, VIDEO_PROTOCOLS):
            for name, protocol in protocols.items():
                patch.setitem(protocols, name, dataclasses.replace(protocol, sizes=(IMAGES["test"],)))
        yield root


def commands_of(paper: str, name: str, part: slice) -> list[str]:
    """The commands of the row, or of the first row of the experiment, of that name."""
    content = experiments().load()
    (found,) = (entry for entry in content["papers"] if entry["paper"] == paper)
    for experiment in found["experiments"]:
        rows = experiments().commands(experiment, content["data"])
        for row, commands in rows.items():
            if row.endswith(name) or experiment["what"].startswith(name):
                return list(commands[part])
    raise AssertionError(name)


def small(command: str, home: Path, best: str) -> tuple[str, list[str]]:
    """The script and the words of a command, with settings of the size, and what it can only be told by a user."""
    _, script, *words = shlex.split(os.path.expandvars(command))
    config = Path(words[words.index("--config") + 1]).name
    words = [
        str(home / Path(word).name) if "/searches/" in word else best if word == "BEST" else word for word in words
    ]
    settings = [*EVERY, *DATA.get(config, [])]
    if Path(script).name == "full.py" or "--search" in words:
        settings += [*TRAINING, *SMALL.get(config, [])]
    return script, [*words, *(f"--set={setting}" for setting in settings)]


@pytest.mark.parametrize(
    "row", [row if number == 0 else pytest.param(row, marks=pytest.mark.nightly) for number, row in enumerate(ROWS)]
)
def test_a_row_of_each_kind_ends(
    row: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    best = ""
    for command in [command for named in ROWS[row] for command in commands_of(*named)]:
        script, words = small(command, home, best)
        code = exit_code(script, words, monkeypatch)
        out, err = capsys.readouterr()
        assert code == 0, f"{command}\n{out}\n{err}"
        if script.endswith("full.py"):
            best = str(max(home.glob("work/train/*/best-*"), key=lambda path: path.stat().st_mtime))

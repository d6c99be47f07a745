"""Bad neighbour: odd and broken images among sound ones are done or skipped with their reason, by every command."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from preprocessing.features.images import load_image

PIPELINES = Path(__file__).parents[3] / "pipelines"
SOUND = [f"{number}.jpg" for number in range(40)]
LINES = {"row.png": (5000, 1), "column.png": (1, 5000), "rows.jpg": (3000, 2), "dot.jpg": (1, 1)}
BROKEN = {"empty.jpg": b"", "text.jpg": b"not an image", "cut.jpg": b"\xff\xd8\xff\xe0\x00\x10JFIF"}

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.fixture
def photos(work_dir: Path, ray_cluster: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster)
    monkeypatch.setenv("VSE_WORK_DIR", str(work_dir))
    folder = work_dir.parent / "photos"
    folder.mkdir()
    for number, name in enumerate(SOUND):
        load_image(f"scene://0/{number}").save(folder / name)
    for name, size in LINES.items():
        Image.new("RGB", size, "blue").save(folder / name)
    for name, content in BROKEN.items():
        (folder / name).write_bytes(content)
    return folder


def vse(verb: str, *arguments: str) -> str:
    """Run a command; return what it printed."""
    command = [sys.executable, str(PIPELINES / f"{verb}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("encoder", ["features", "pixels"])
def test_full_trains_with_what_can_be_used(photos: Path, work_dir: Path, encoder: str) -> None:
    names = [*SOUND, *LINES, *BROKEN, "missing.jpg"]
    table = photos / "captions.tsv.gz"
    rows = [
        f"{name}\t{text}\n" for name in names for text in (f"image {name}", "" if name == "0.jpg" else "a blue line")
    ]
    table.write_bytes(gzip.compress("".join(["image\tcaption\n", *rows]).encode()))
    config = photos / "config.yaml"
    config.write_text(
        f"name: odd\nwork_dir: {work_dir}\n"
        f"dataset: {{format: table, images: {photos}, tables: {{train: {table}, dev: {table}}}, train_split: train, "
        "eval_split: dev}\ntraining: {epochs: 1, batch_size: 20}\nvocabulary: {min_count: 1}\n"
    )
    grid = ["features={extractor: grid, weights: tiny_resnet, random_seed: 0}"]
    pixels = [
        "features={extractor: images}",
        "model.image={name: backbone, architecture: resnet50, image_size: 64, pooling: {name: gpo}, "
        "frozen_epochs: 0, learning_rate_factor: 0.1}",
        "training.image_augmentation=true",
        "training.size_augmentation=grid",
    ]
    printed = vse(
        "full", "--config", str(config), *(f"--set={each}" for each in (pixels if encoder == "pixels" else grid))
    )
    assert "88 images, 174 captions" in " ".join(printed.split())
    assert list((work_dir / "pipelines").glob("*/report.html"))


def test_a_gallery_takes_what_can_be_used_and_remembers_the_rest(photos: Path, tmp_path: Path, work_dir: Path) -> None:
    from tests.pipelines.tiny_bundle import write_tiny_bundle

    bundle = write_tiny_bundle(tmp_path / "bundle")
    shutil.copy(photos / "0.jpg", os.fsencode(photos) + b"/caf\xe9.jpg")
    made = vse("index", "--name", "odd", "--model", str(bundle), "--images", str(photos))
    assert "44 images; 44 embedded, 0 removed, 4 skipped" in made
    assert "0 to embed, 0 to remove, 4 to skip" in vse("index", "--name", "odd")
    for name in LINES:
        sheet = tmp_path / f"{name}.html"
        found = vse("search", "--gallery", "odd", "--image", str(photos / name), "-k", "4", "--output", str(sheet))
        assert name in found
        assert sheet.read_text().count("data:image/jpeg") == 5

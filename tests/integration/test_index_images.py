"""Images without captions from the command line to the page: indexed by Ray actors, updated, and found in Chromium."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from pipelines.retrieval.options import gallery_folder
from pipelines.retrieval.search_model import load_search_model
from pipelines.serving.replica import SearchReplica
from pipelines.serving.rollout import find_served
from preprocessing.features.images import image_bytes, load_image
from preprocessing.storage.s3 import S3Storage
from tests.integration import browser
from tests.integration.test_search_page import require_shown, served
from tests.pipelines.tiny_bundle import write_tiny_bundle

ROOT = Path(__file__).parents[2]


def index(*arguments: str, name: str = "holiday") -> str:
    command = [sys.executable, "pipelines/index.py", "--name", name, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_images_are_indexed_updated_and_found_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSE_WORK_DIR", str(tmp_path / "work"))
    bundle = write_tiny_bundle(tmp_path / "bundle")
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(6):
        load_image(f"scene://0/{number}").save(photos / f"{number}.png")
    (photos / "bad.jpg").write_text("no image")
    assert "6 images; 6 embedded, 0 removed, 1 skipped" in index("--model", str(bundle), "--images", str(photos))
    (photos / "0.png").unlink()
    (photos / "bad.jpg").unlink()
    assert "5 images; 0 embedded, 1 removed" in index()

    replica = SearchReplica(str(gallery_folder("holiday")), "unused")
    with browser.running() as page, served(replica) as address:
        page.goto(address)
        expect(page.locator("#model")).to_contain_text(re.compile(r"holiday/000002-\w+: 5 images"))
        page.fill("#text", "a red ring")
        page.press("#text", "Enter")
        require_shown(page, 5)
        page.set_input_files("#file", photos / "3.png")
        expect(page.locator("#results li").first).to_contain_text("3.png")


@pytest.mark.nightly
@pytest.mark.usefixtures("s3_client")
def test_images_on_s3_are_indexed_and_updated(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSE_WORK_DIR", str(tmp_path / "work"))
    bundle = write_tiny_bundle(tmp_path / "bundle")
    folder = S3Storage(f"{bucket}/holiday")
    for number in range(3):
        folder.write(f"{number}.png", image_bytes(load_image(f"scene://0/{number}"), "PNG"))
    found = index("--model", str(bundle), "--images", f"{bucket}/holiday", name="far")
    assert "3 images; 3 embedded, 0 removed" in found
    folder.delete("0.png")
    folder.write("1.png", image_bytes(load_image("scene://0/7"), "PNG"))
    assert "1 to embed, 1 to remove" in index("--dry-run", name="far")


@pytest.mark.nightly
@pytest.mark.usefixtures("s3_client")
def test_a_gallery_on_s3_is_that_of_every_machine(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = S3Storage(f"{bucket}/shared")
    for number in range(3):
        folder.write(f"{number}.png", image_bytes(load_image(f"scene://0/{number}"), "PNG"))
    monkeypatch.setenv("VSE_STORAGE", f"{bucket}/{tmp_path.name}")
    monkeypatch.setenv("VSE_WORK_DIR", str(tmp_path / "first"))
    bundle = write_tiny_bundle(tmp_path / "bundle")
    assert "3 embedded" in index("--model", str(bundle), "--images", f"{bucket}/shared", name="shared")
    first = gallery_folder("shared")
    served = find_served(str(first), "unused")
    monkeypatch.setenv("VSE_WORK_DIR", str(tmp_path / "second"))
    replica = SearchReplica(str(gallery_folder("shared")), "unused")
    shown = replica._model.thumbnails["1.png"].relative_to(gallery_folder("shared"))
    assert replica._image("1.png") == (first / shown).read_bytes()
    assert replica._image("1.png", is_full=True)
    folder.delete("0.png")
    assert "2 images; 0 embedded, 1 removed" in index(name="shared")
    monkeypatch.setenv("VSE_WORK_DIR", str(tmp_path / "first"))
    assert find_served(str(first), "unused") != served
    assert [record.image_id for record in load_search_model(str(first), "unused").gallery.records] == ["1.png", "2.png"]
    index("--delete", name="shared")
    assert not list(S3Storage(f"{bucket}/{tmp_path.name}").list("galleries"))

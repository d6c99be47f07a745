"""The Python interface, `vse`: what it loads, embeds and finds is what the parts below it do."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vse
from pipelines.inference.embedder import Embedder
from pipelines.registry.models import find_bundle
from pipelines.runtime.stage import StageError
from tests.dual_encoders import write_dual_encoder
from tests.pipelines.registry.test_pretrained import TEXTS, photos  # noqa: F401 (a fixture)
from tests.pipelines.tiny_bundle import write_tiny_bundle

LIGHT = """
import sys
import vse
heavy = {"torch", "transformers", "mlflow", "ray", "torchvision", "pandas"} & set(sys.modules)
print(heavy)
"""


def test_importing_it_loads_nothing_heavy() -> None:
    paths = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True, env=paths)
    assert done.stdout == "set()\n"


SEARCH = """
import sys
import vse
print(len(vse.load(sys.argv[1]).search("a red ring", k=3)))
print({"transformers", "mlflow", "ray", "torchvision", "pandas"} & set(sys.modules))
"""


def test_a_search_by_text_loads_what_the_text_needs_alone(tmp_path: Path) -> None:
    assert searched(write_tiny_bundle(tmp_path / "bundle")) == "3\nset()\n"


def searched(model: Path) -> str:
    """Return what a process prints that searches by text and names the heavy packages that it has loaded."""
    paths = {"PYTHONPATH": ":".join(filter(None, sys.path)), "VSE_WORK_DIR": os.environ.get("VSE_WORK_DIR", "runs")}
    command = [sys.executable, "-c", SEARCH, str(model)]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=paths).stdout


def test_photographs_of_a_pretrained_model_are_indexed_and_found(
    photos: Path,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = vse.load(f"hf:{write_dual_encoder(tmp_path / 'clip', 'clip', TEXTS)}")
    files = sorted(photos.iterdir())
    images_BD, texts_CD = model.embed(images=files), model.embed(texts=TEXTS)
    _, bundle = find_bundle(model.name, "unused")
    embedder = Embedder(bundle / "model", bundle / "extractor", device="cpu")
    np.testing.assert_allclose(images_BD, embedder.embed_images([str(file) for file in files])[:, 0], atol=1e-6)
    np.testing.assert_allclose(texts_CD, embedder.embed_texts(TEXTS), atol=1e-6)
    np.testing.assert_allclose(model.embed(images=[Image.open(file) for file in files]), images_BD, atol=1e-6)
    np.testing.assert_allclose(model.embed(images=files[0]), images_BD[:1], atol=1e-6)
    np.testing.assert_allclose(model.embed(texts=np.array(TEXTS)), texts_CD, atol=1e-6)
    with pytest.raises(ValueError, match="all paths or addresses, or all PIL images"):
        model.embed(images=[files[0], Image.open(files[0])])
    with pytest.raises(ValueError, match=r"missing\.jpg: no such file"):
        model.embed(images="missing.jpg")
    for missing in (tmp_path / "missing.jpg", Image.new("F", (2, 2))):
        of_its_kind = files[0] if isinstance(missing, Path) else Image.open(files[0])
        with pytest.raises(ValueError, match=r"input 40: "):
            model.embed(images=[*[of_its_kind] * 40, missing])
    turned, exif = Image.open(files[0]).rotate(90, expand=True), Image.Exif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.png", exif=exif)
    of_file, of_image = (model.embed(images=[image]) for image in (files[0], Image.open(tmp_path / "turned.png")))
    np.testing.assert_allclose(of_image, of_file, atol=1e-6)
    with pytest.raises(StageError, match=r"has no gallery: make one of a folder of images by index\(FOLDER\)"):
        model.search("a red square")

    gallery = model.index(photos)
    assert "search: vse search --gallery " in capsys.readouterr().out
    for found in (gallery, vse.load("photos"), vse.load(tmp_path / "work" / "galleries" / "photos")):
        hits = found.search(TEXTS[0], k=3)
        similarities_B = images_BD @ texts_CD[0]
        assert [hit.item_id for hit in hits] == [files[image].name for image in np.argsort(-similarities_B)[:3]]
        assert [hit.similarity for hit in hits] == pytest.approx(sorted(similarities_B, reverse=True)[:3], abs=1e-5)
    photos.rename(photos.with_name("2023.05"))
    model.index(photos.with_name("2023.05"))
    assert (tmp_path / "work" / "galleries" / "2023.05").is_dir()
    photos.with_name("2023.05").rename(photos)
    for image in (files[2], Image.open(files[2])):
        assert gallery.search(image=image, k=1)[0].item_id == files[2].name
    assert gallery.search(TEXTS[0], where="image contains '1'")[0].item_id == "1.png"
    assert searched(tmp_path / "work" / "galleries" / "photos") == "3\nset()\n"


def test_a_folder_with_a_model_is_loaded_with_its_gallery_if_it_has_one(tmp_path: Path) -> None:
    model = vse.load(write_tiny_bundle(tmp_path / "bundle"))
    assert model.search("a red ring", k=2)[0].image_uri == model.search("a red ring", k=1)[0].image_uri
    assert model.search("a red ring", target="captions")[0].caption
    for given in ({}, {"texts": ["a"], "images": ["b"]}, {"texts": []}):
        with pytest.raises(ValueError, match=r"give one of the two|an empty list"):
            model.embed(**given)
    with pytest.raises(ValueError, match="input 1: the text is empty"):
        model.embed(texts=["a ring", " "])
    with pytest.raises(ValueError, match="texts that are strings"):
        model.embed(texts=["a ring", None])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"'my photos' cannot name a gallery.* by index"):
        model.index(tmp_path / "my photos")
    for given, message in (
        ({"k": 0}, "k of 1 or more"),
        ({"min_confidence": 2}, "min_confidence from 0 to 1"),
        ({"target": "image"}, "'images' or 'captions', not 'image'"),
    ):
        with pytest.raises(ValueError, match=message):
            model.search("a red ring", **given)
    with pytest.raises(StageError, match="holds no model"):
        vse.load(tmp_path)

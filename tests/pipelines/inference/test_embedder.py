"""The embedder gives, from raw texts and images, the embeddings that the pipeline computed from shards."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.inference.embedder import Embedder, QueryError, _extractor_options, write_extractor
from pipelines.retrieval.gallery import Gallery
from preprocessing.features import build_extractor
from preprocessing.features.butd.weights import load_weights
from preprocessing.features.extractor import ExtractorError, Grid, RegionFeatures
from tests.pipelines.tiny_bundle import EMBED_DIM, write_tiny_bundle
from tests.preprocessing.features.butd.tiny import tiny_detector
from vse_core.digests import write_digests


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bundle(tmp_path_factory.mktemp("embedder"))


@pytest.fixture(scope="module")
def embedder(bundle: Path) -> Embedder:
    return Embedder(bundle / "model", bundle / "extractor", device="cpu")


def test_images_and_texts_meet_their_gallery(bundle: Path, embedder: Embedder) -> None:
    gallery = Gallery.load(bundle / "gallery")
    images_BKD = embedder.embed_images([record.image_uri for record in gallery.records])
    texts_CD = embedder.embed_texts([caption.text for _, caption in gallery.captions])
    torch.testing.assert_close(images_BKD, gallery.images_BKD, atol=1e-3, rtol=0)
    torch.testing.assert_close(texts_CD, gallery.texts_CD, atol=1e-5, rtol=0)
    assert texts_CD.shape[1] == EMBED_DIM


def test_words_that_are_not_known_are_named_with_numbers_and_emojis(embedder: Embedder) -> None:
    """Punctuation is not, although the vocabulary lacks it."""
    found = embedder.texts.unknown_words("a zyzzyva, 2024: a ring!!! 😀 ... runs. 'a' \"ring\"")
    assert found == ["zyzzyva", "2024", "😀", "runs."]


def test_the_quotes_of_telephones_are_those_of_keyboards(embedder: Embedder) -> None:
    typed, curled = embedder.embed_texts(['a ring\'s "red" edge', "a ring’s “red” edge"])
    torch.testing.assert_close(typed, curled, atol=0, rtol=0)
    assert embedder.texts.unknown_words("a ring’s edge") == embedder.texts.unknown_words("a ring's edge")


@pytest.mark.parametrize("text", ["", " \n"])
def test_empty_text_is_refused_by_its_position(embedder: Embedder, text: str) -> None:
    with pytest.raises(QueryError, match="the text is empty") as caught:
        embedder.embed_texts(["a dog", text])
    assert caught.value.position == 1


def test_unreadable_image_is_refused_by_its_position_beyond_the_first_batch(embedder: Embedder, tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"not an image")
    with pytest.raises(QueryError, match="not an image") as caught:
        embedder.embed_images(["scene://0/0"] * 34 + [str(tmp_path / "broken.jpg")])
    assert caught.value.position == 34


def test_an_image_of_a_storage_that_cannot_be_reached_is_refused_by_its_position(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with pytest.raises(QueryError, match="bucket") as caught:
        embedder.embed_images(["scene://0/0", "s3://bucket/dog.jpg"])
    assert caught.value.position == 1


def test_extractor_takes_local_weights_along_but_nothing_that_could_run_and_names_others(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    for name in ("config.json", "model.safetensors", "pytorch_model.bin", "modeling.py"):
        (weights / name).write_text("x")
    write_extractor(tmp_path / "out", "grid", {"weights": str(weights), "seed": None})
    assert sorted(path.name for path in (tmp_path / "out" / "weights").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    written = json.loads((tmp_path / "out" / "extractor.json").read_text())
    assert written == {"name": "grid", "options": {"weights": {"folder": "weights"}, "seed": None}}
    write_extractor(tmp_path / "of a hub", "grid", {"weights": "google/some-model"})
    assert json.loads((tmp_path / "of a hub/extractor.json").read_text())["options"]["weights"] == "google/some-model"


def test_weights_elsewhere_than_in_the_bundle_are_refused(tmp_path: Path) -> None:
    content = {"name": "grid", "options": {"weights": {"folder": "../weights"}}}
    (tmp_path / "extractor.json").write_text(json.dumps(content))
    write_digests(tmp_path)
    with pytest.raises(
        ExtractorError, match=r"extractor\.json: the name '\.\./weights' is not a path inside its folder"
    ):
        _extractor_options(tmp_path, "cpu")


def test_extractor_takes_a_file_of_weights_along_as_safetensors(tmp_path: Path) -> None:
    from torchvision.models import mobilenet_v3_small

    torch.save(mobilenet_v3_small(weights=None).state_dict(), tmp_path / "weights.pth")
    options = {"weights": str(tmp_path / "weights.pth"), "network": "mobilenet_v3_small", "image_size": 64}
    expected = build_extractor("grid", **options).identity()
    write_extractor(tmp_path / "out", "grid", options)
    (tmp_path / "weights.pth").unlink()
    assert [path.name for path in (tmp_path / "out" / "weights").iterdir()] == ["model.safetensors"]
    assert build_extractor(**_extractor_options(tmp_path / "out", "cpu")).identity() == expected


def test_extractor_takes_the_detectors_weights_along_as_safetensors(tmp_path: Path) -> None:
    """Whatever their form: a registered model needs no pickle, and no other place."""
    state = tiny_detector(seed=3).state_dict()
    torch.save(state, tmp_path / "released.pth")
    write_extractor(tmp_path / "out", "butd", {"weights": str(tmp_path / "released.pth"), "seed": None})
    folder = tmp_path / "out" / "weights"
    assert [path.name for path in folder.iterdir()] == ["model.safetensors"]
    written = json.loads((tmp_path / "out" / "extractor.json").read_text())
    assert written["options"]["weights"] == {"folder": "weights"}
    detector = tiny_detector(seed=4)
    load_weights(detector, str(folder))
    assert all(torch.equal(tensor, state[name]) for name, tensor in detector.state_dict().items())


def test_regions_are_embedded_by_their_features(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Further features of the regions do not reach the model."""
    embedder = Embedder(bundle / "model", bundle / "extractor", device="cpu")
    expected = embedder.embed_images(["scene://0/0", "scene://0/1"])
    alone = embedder._extractor

    class WithBoxes:
        name, load = "region", staticmethod(alone.load)

        def __call__(self, items: Sequence[Any]) -> list[RegionFeatures]:
            boxes = np.zeros((1, 4), np.float32)
            return [RegionFeatures(found.features, {"boxes": boxes}) for found in alone(items)]  # type: ignore

    monkeypatch.setattr(embedder, "_extractor", WithBoxes())
    assert torch.equal(embedder.embed_images(["scene://0/0", "scene://0/1"]), expected)


def test_missing_parts_are_named(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model\.json is missing"):
        Embedder(tmp_path, bundle / "extractor")
    with pytest.raises(FileNotFoundError, match=r"extractor\.json is missing"):
        Embedder(bundle / "model", tmp_path)


def test_regions_pool_to_the_image_and_lie_on_the_grid(bundle: Path, embedder: Embedder) -> None:
    found = embedder.embed_with_regions("scene://0/0")
    torch.testing.assert_close(found.image_KD, embedder.embed_images(["scene://0/0"])[0], atol=1e-5, rtol=0)
    rows, columns = found.places
    assert rows == columns
    assert found.regions_PND.shape == (1, rows * columns, EMBED_DIM)
    torch.testing.assert_close(found.regions_PND.norm(dim=-1), torch.ones(1, rows * columns), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.of_view(3), found.regions_PND[0])
    with pytest.raises(QueryError, match="no such file"):
        embedder.embed_with_regions("/no/such/image.jpg")


class Given:
    """An extractor that gives some vectors as ready features, and what is known of them."""

    name = "region"

    def __init__(self, count: int, **places: Any) -> None:
        rows = np.random.default_rng(0).standard_normal((count, 192))
        self._stored = RegionFeatures(rows.astype(np.float16), **places)

    def load(self, uri: str) -> str:
        return uri

    def __call__(self, items: Sequence[Any]) -> list[RegionFeatures]:
        return [self._stored] * len(items)


def test_only_a_recorded_grid_is_one(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine regions without boxes are no 3 x 3 cells; six cells behind a class token are 2 x 3."""
    embedder = Embedder(bundle / "model", bundle / "extractor", device="cpu")
    monkeypatch.setattr(embedder, "_extractor", Given(9))
    with pytest.raises(ValueError, match="where the 9 features of an image lie is not known: they have no boxes"):
        embedder.embed_with_regions("any.jpg")
    monkeypatch.setattr(embedder, "_extractor", Given(9, companions={"boxes": np.ones((9, 4), np.float32)}))
    assert embedder.embed_with_regions("any.jpg").places.tolist() == [[1] * 4] * 9  # type: ignore[union-attr]
    monkeypatch.setattr(embedder, "_extractor", Given(7))
    alone = embedder.embed_images(["any.jpg"])[0]
    monkeypatch.setattr(embedder, "_extractor", Given(7, grid=Grid(2, 3, 1)))
    found = embedder.embed_with_regions("any.jpg")
    assert found.places == (2, 3)
    assert found.regions_PND.shape == (1, 6, EMBED_DIM)
    torch.testing.assert_close(found.image_KD, alone, atol=1e-6, rtol=0)

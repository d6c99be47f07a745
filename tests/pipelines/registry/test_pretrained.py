"""Pretrained dual encoders by name: a gallery of photographs without training, registration or MLflow."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers import AutoModel, AutoProcessor

from pipelines.inference.embedder import Embedder
from pipelines.registry.models import find_bundle, newer_version, unpinned
from pipelines.retrieval import image_gallery, index_images
from pipelines.retrieval.embed_images import embed_files
from pipelines.retrieval.image_files import ImageFile
from pipelines.retrieval.index import main
from pipelines.retrieval.options import gallery_folder
from pipelines.retrieval.search_model import SearchError, load_search_model
from pipelines.runtime.cli import guarded
from pipelines.serving.rollout import find_served
from preprocessing.features.images import load_image
from tests.dual_encoders import write_dual_encoder
from vse_core import hub
from vse_core.hub import require_on_hub

TEXTS = ["a red square", "two blue rings"]


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photographs of several shapes; images are embedded by the actors' own function in this process."""
    monkeypatch.setenv("VSE_WORK_DIR", str(tmp_path / "work"))
    (tmp_path / "photos").mkdir()
    for number in range(4):
        image = load_image(f"scene://0/{number}").resize((120 + 40 * number, 100))
        image.save(tmp_path / "photos" / f"{number}.png")

    def embed(todo: list[ImageFile], bundle: Path, images: str, folder: Path, parts: Path, _: int) -> object:
        found, skipped = embed_files(Embedder(bundle / "model", bundle / "extractor", "cpu"), todo, images)
        assert found is not None
        return [image_gallery.write_part(folder, parts, found)], skipped

    monkeypatch.setattr(index_images, "embed_images", embed)
    return tmp_path / "photos"


def index(*arguments: str) -> int:
    return guarded(partial(main, ["--name", "holiday", *arguments]))


def library_vectors(weights: Path, photos: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors of images and texts by transformers alone."""
    model, processor = AutoModel.from_pretrained(weights).eval(), AutoProcessor.from_pretrained(weights)
    images = [Image.open(path).convert("RGB") for path in sorted(photos.iterdir())]
    padding = "max_length" if model.config.model_type == "siglip" else True
    with torch.inference_mode():
        pixels = processor.image_processor(images, return_tensors="pt")
        tokens = processor.tokenizer(TEXTS, return_tensors="pt", padding=padding, truncation=True, max_length=24)
        of_images = model.get_image_features(pixel_values=pixels["pixel_values"]).pooler_output
        of_texts = model.get_text_features(input_ids=tokens["input_ids"]).pooler_output
    return torch.nn.functional.normalize(of_images), torch.nn.functional.normalize(of_texts)


@pytest.mark.parametrize("model_type", ["clip", "siglip"])
def test_photographs_have_the_similarities_of_transformers(model_type: str, photos: Path, tmp_path: Path) -> None:
    weights = write_dual_encoder(tmp_path / "weights", model_type, TEXTS)
    assert index("--model", f"hf:{weights}", "--images", str(photos)) == 0
    images_BD, texts_CD = library_vectors(weights, photos)
    model = load_search_model(str(gallery_folder("holiday")), "unused")
    for text, expected_B in zip(TEXTS, texts_CD @ images_BD.T, strict=True):
        found = {hit.item_id: hit.similarity for hit in model.answer(text, "text", 4, "images").hits}
        assert list(found.values()) == sorted(found.values(), reverse=True)
        similarities_B = torch.tensor([found[f"{image}.png"] for image in range(4)])
        # The library resizes by torchvision; random weights make much of half a grey level.
        torch.testing.assert_close(similarities_B, expected_B, atol=2e-2, rtol=0)


def test_a_gallery_keeps_its_weights_whatever_becomes_of_the_folder(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = write_dual_encoder(tmp_path / "weights", "clip", TEXTS)
    assert index("--model", f"hf:{weights}", "--images", str(photos)) == 0
    folder = gallery_folder("holiday")
    first = json.loads((folder / "gallery.json").read_text())
    assert first["model"].startswith(f"hf:{weights}@")
    assert unpinned(first["model"]) == f"hf:{weights}"
    assert newer_version(first["model"], "unused") == ""
    served = find_served(str(folder), "unused")
    assert (served.model, served.version) == (str(folder), first["model"])
    bundle = find_bundle(first["model"], "unused")[1]
    assert first["origin"]["model"] == image_gallery.bundle_origin(bundle)["model"]

    write_dual_encoder(weights, "clip", ["other words, so another tokenizer and another size"])
    assert index() == 0
    assert "up to date" in capsys.readouterr().out
    assert len(load_search_model(str(folder), "unused").answer("a red square", "text", 9, "images").hits) == 4
    assert index("--model", f"hf:{weights}") == 0
    second = json.loads((folder / "gallery.json").read_text())
    assert "4 embedded" in capsys.readouterr().out
    assert second["origin"]["model"] != first["origin"]["model"]

    with pytest.raises(SearchError, match=r"has no gallery of its own: index images \(.*--name NAME\), and give --gal"):
        load_search_model(f"hf:{weights}", "unused")


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A hub that knows one model."""

    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            is_known = self.path.startswith("/openai/clip/")
            self.send_response(200 if is_known else 404)
            self.send_header("ETag", '"1"')
            self.send_header("X-Repo-Commit", "0" * 40)
            if not is_known:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Hub)
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_: None)
    monkeypatch.setattr(hub, "hf_hub_url", lambda name, file: f"{address}/{name}/resolve/main/{file}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield address
    server.shutdown()
    server.server_close()


def test_a_misspelt_name_is_told_from_a_hub_that_does_not_answer(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    require_on_hub("openai/clip")
    require_on_hub(str(tmp_path))
    with pytest.raises(ValueError, match=r"no model on the hub called 'openai/clap': correct the name \(OWNER/NAME"):
        require_on_hub("openai/clap")
    with pytest.raises(ValueError, match="no model on the hub called 'a/b/c'"):
        require_on_hub("a/b/c")
    monkeypatch.setattr(hub, "hf_hub_url", lambda name, _: f"http://127.0.0.1:9/{name}")
    with pytest.raises(ValueError, match=r"hub does not answer \(.*run `hf download openai/clip --local-dir FOLDER`"):
        require_on_hub("openai/clip")


def test_a_name_that_does_not_exist_leaves_nothing_behind(
    endpoint: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert index("--model", "hf:openai/clap", "--images", str(photos)) == 1
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith("error: hf:openai/clap: there is no folder and no model")
    assert index("--model", f"hf:{tmp_path}/absent", "--images", str(photos)) == 1
    assert "there is no folder" in capsys.readouterr().err
    assert not list((tmp_path / "work").glob("pretrained/*/*"))
    assert not gallery_folder("holiday").exists()

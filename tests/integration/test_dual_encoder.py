"""A CLIP from zero-shot to a service: extracted, evaluated, fine-tuned by LoRA, registered, searched and exported."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from pipelines.inference.embedder import Embedder
from pipelines.registry.models import find_bundle
from pipelines.serving import running
from preprocessing.datasets import build_dataset
from preprocessing.features.images import image_bytes, load_image
from tests.dual_encoders import SIDE, write_dual_encoder
from tests.integration.test_serve import ask
from tests.pipelines.registry.test_open_clip import write
from tests.pipelines.serving.bad_requests import FORM, form
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
NAME = "clip-scenes"

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]


# By the library of the weights.
RATES = {"clip": 0.01, "open_clip": 0.001}


@pytest.fixture(scope="module", params=RATES)
def weights(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "open_clip":
        return write(tmp_path_factory.mktemp("weights") / "open_clip", "clip")
    records = build_dataset("scenes", seed=0, images={"train": 200}).records("train")
    texts = [caption.text for record in records for caption in record.captions]
    return write_dual_encoder(tmp_path_factory.mktemp("weights") / "clip", "clip", texts)


@pytest.fixture(autouse=True)
def place(ray_cluster: str, work_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster)
    monkeypatch.setenv("VSE_WORK_DIR", str(work_dir))


def vse(verb: str, *arguments: str) -> str:
    command = [sys.executable, str(ROOT / "pipelines" / f"{verb}.py"), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def configured(weights: Path, *settings: str) -> list[str]:
    """The arguments of a run on scenes."""
    config, rate = weights.parent / "clip.yaml", RATES[weights.name]
    config.write_text(
        f"name: {NAME}\npreset: dual_encoder\nmodel: {{weights: {weights}}}\n"
        "dataset: {format: scenes, seed: 0, images: {train: 200, dev: 50}}\n"
        "features: {extractor: images, shard_size: 50}\n"
        f"training: {{batch_size: 40, log_steps: 1, learning_rate: {rate}}}\n"
    )
    return ["--config", str(config), *(f"--set={setting}" for setting in settings)]


# Enough epochs for any tokenizer: tokenizers breaks ties at random, so the random CLIP differs from run to run.
LORA = (
    "model.lora={rank: 8}",
    "training.epochs=14",
    "loss.temperature=0.05",
)


def rsum_of(work_dir: Path) -> float:
    """The RSUM in the newest evaluation."""
    newest = max(work_dir.glob("evaluate/*/manifest.json"), key=lambda path: path.stat().st_mtime_ns)
    return float(json.loads(newest.read_text())["metrics"]["rsum"])


def losses_of(work_dir: Path) -> list[float]:
    (path,) = work_dir.glob("train/*/losses.jsonl")
    return [json.loads(line)["loss"] for line in path.read_text().splitlines()]


def test_from_zero_shot_to_a_service_and_out(weights: Path, work_dir: Path, tmp_path: Path) -> None:
    vse("full", *configured(weights))
    zero_shot = rsum_of(work_dir)
    vse("full", *configured(weights, *LORA))
    fine_tuned = rsum_of(work_dir)
    assert fine_tuned > zero_shot + 10

    image = image_bytes(load_image("scene://0/3"), "PNG")
    (tmp_path / "image.png").write_bytes(image)
    assert "rank" in vse("search", "--model", f"{NAME}/2", "--image", str(tmp_path / "image.png"))
    port, tracking = free_port(), f"sqlite:///{work_dir / 'mlflow.db'}"
    with running.serving(f"{NAME}/2", tracking, "127.0.0.1", port):
        json_type = {"Content-Type": "application/json"}
        status, body = ask(port, "POST", "/search", b'{"text": "a red ring", "k": 3}', json_type)
        assert status == 200, body
        assert len(json.loads(body)["results"]) == 3
        status, body = ask(port, "POST", "/search/image", form(image, "image/png"), FORM)
        assert status == 200, body
        assert json.loads(body)["results"]

    vse("export", "--model", f"{NAME}/2", "--output", str(tmp_path / "out"))
    vse("export", "--model", f"{NAME}/2", "--output", str(tmp_path / "half"), "--interpolate", "0.5")
    assert "0.5 of the fine-tuned" in (tmp_path / "half" / "README.md").read_text()
    _, bundle = find_bundle(f"hf:{tmp_path / 'out'}", "unused")  # what was exported is a pretrained model again
    embedder = Embedder(bundle / "model", bundle / "extractor", device="cpu")
    texts = ["a red ring", "two small blue squares above a green triangle"]
    ((tokens_CL, lengths_C, *_),) = embedder.texts.batches(texts)
    pixels_BCHW = np.random.default_rng(0).uniform(0, 255, (3, 3, SIDE, SIDE)).astype(np.float32)
    graphs = {
        name: onnxruntime.InferenceSession(tmp_path / "out" / "onnx" / f"{name}.onnx") for name in ("texts", "images")
    }
    (texts_CD,) = graphs["texts"].run(None, {"tokens": tokens_CL.numpy(), "lengths": lengths_C.numpy()})
    (images_BKD,) = graphs["images"].run(None, {"pixels": pixels_BCHW})
    with torch.no_grad():
        expected_BKD = embedder.model.encode_images(torch.from_numpy(pixels_BCHW), torch.ones(3, 1))
    differences = [np.abs(texts_CD - embedder.embed_texts(texts).numpy()).max()]
    differences.append(np.abs(images_BKD - expected_BKD.numpy()).max())
    assert max(differences) <= 1e-5
    print(f"RSUM {zero_shot:.1f} -> {fine_tuned:.1f}; ONNX {max(differences):.1e}")


@pytest.mark.parametrize(
    "more", [LORA[1:], LORA, (*LORA[1:], "training.parallelism=fsdp2")], ids=["whole", "lora", "sharded"]
)
def test_two_processes_fine_tune_as_one(weights: Path, work_dir: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    losses = []
    for workers in (1, 2):
        own = tmp_path / str(workers)
        if workers == 1:
            vse("extract", *configured(weights, *more, f"work_dir={own}"))
        else:
            shutil.copytree(tmp_path / "1" / "extract", own / "extract")
        settings = ("training.epochs=1", f"training.workers={workers}", "training.cpus_per_worker=0.25")
        vse("train", *configured(weights, *more, *settings, f"work_dir={own}"))
        losses.append(losses_of(own))
    assert len(losses[0]) == 25
    assert losses[1] == pytest.approx(losses[0], rel=1e-5, abs=1e-5)

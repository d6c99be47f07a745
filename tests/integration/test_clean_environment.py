"""A registered model of each kind runs in an environment made from its logged requirements alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mlflow
import numpy as np
import pytest
from mlflow import MlflowClient

from pipelines.inference.embedder import Embedder, write_extractor
from pipelines.registry.registration import register_bundle
from pipelines.retrieval.faiss_index import GalleryIndex, index_origin
from pipelines.retrieval.gallery import Gallery
from pipelines.serving.requirements import pip_requirements
from preprocessing.captions.subwords import SubwordTokenizer
from preprocessing.datasets import build_dataset
from preprocessing.features import TINY_RESNET
from preprocessing.features.images import load_image
from tests.dual_encoders import dual_specification, write_dual_encoder
from tests.pipelines.tiny_bundle import write_tiny_bundle, write_tiny_unified_bundle
from tests.preprocessing.features.test_frames import encoded
from vse_core.models import build_model

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

TEXT = "a small red circle"
PROGRAM = """
import json, pathlib, sys
import mlflow, pandas as pd

model = mlflow.pyfunc.load_model(sys.argv[1])
inputs = {"text": sys.argv[2], "image": pathlib.Path(sys.argv[3]).read_bytes()}
found = [model.predict(pd.DataFrame({name: [value]})) for name, value in inputs.items()]
print(json.dumps([list(map(float, each["embedding"].iloc[0])) for each in found]))
"""


def write_video_bundle(directory: Path) -> Path:
    write_tiny_bundle(directory)
    write_extractor(directory / "extractor", "frames", {"weights": TINY_RESNET, "seed": 0, "frames": 2})
    return directory


def write_dual_bundle(directory: Path) -> Path:
    records = tuple(build_dataset("scenes", seed=0, images={"dev": 3}).records("dev"))
    texts = [caption.text for record in records for caption in record.captions]
    weights = write_dual_encoder(directory / "weights", "clip", texts)
    (directory / "model").mkdir()
    build_model(**dual_specification(weights, {"rank": 2, "alpha": 4, "dropout": 0.0})).save(directory / "model")
    SubwordTokenizer.from_pretrained(str(weights), for_tower=True).save(directory / "model" / SubwordTokenizer.FILE)
    write_extractor(directory / "extractor", "images", {})
    embedder = Embedder(directory / "model", directory / "extractor", device="cpu")
    images_BKD = embedder.embed_images([record.image_uri for record in records])
    gallery = Gallery(images_BKD, embedder.embed_texts(texts), records)
    gallery.save(directory / "gallery")
    index = GalleryIndex.build(gallery.images_BKD, gallery.texts_CD)
    index.save(directory / "index", index_origin(directory / "model", directory / "gallery"))
    return directory


KINDS = {
    "two_tower": write_tiny_bundle,
    "univse": write_tiny_unified_bundle,
    "dual_encoder": write_dual_bundle,
    "video": write_video_bundle,
}


def logged(bundle: Path, folder: Path) -> Path:
    """Register a bundle, and return the folder that MLflow keeps of the model."""
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    mlflow.set_registry_uri(f"sqlite:///{folder / 'mlflow.db'}")
    experiment = mlflow.create_experiment("clean", artifact_location=(folder / "artifacts").as_uri())
    with mlflow.start_run(experiment_id=experiment):
        version = register_bundle(bundle, "clean", "0", pip_requirements(bundle), {}, {})
    return Path(MlflowClient().get_logged_model(version.model_id).artifact_location.removeprefix("file://"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_predicts_where_only_its_requirements_are_installed(kind: str, tmp_path: Path) -> None:
    write: Callable[[Path], Path] = KINDS[kind]
    bundle = write(tmp_path / "bundle")
    model = logged(bundle, tmp_path)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "-r", model / "requirements.txt"]
    subprocess.run(install, check=True, cwd=tmp_path)
    image = tmp_path / ("video.mp4" if kind == "video" else "image.png")
    if kind == "video":
        image.write_bytes(encoded())
    else:
        load_image("scene://0/3").save(image)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [python, "-c", PROGRAM, model, TEXT, image]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    shutil.rmtree(tmp_path / "venv")  # 6 GB
    assert run.returncode == 0, run.stderr
    embedder = Embedder(bundle / "model", bundle / "extractor", device="cpu")
    expected = [embedder.embed_texts([TEXT])[0].numpy(), embedder.embed_images([str(image)])[0].flatten().numpy()]
    for found, vector in zip(json.loads(run.stdout.splitlines()[-1]), expected, strict=True):
        np.testing.assert_allclose(found, vector, atol=1e-5)

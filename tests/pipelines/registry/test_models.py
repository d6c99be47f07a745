"""A bundle through a real MLflow: registered once, found by name, loaded as a pyfunc, also by a foreign process."""

import base64
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import scoring_server

from pipelines.registry import registration
from pipelines.registry.models import (
    BUNDLE_PARTS,
    CHALLENGER,
    CHAMPION,
    FINGERPRINT_TAG,
    RegistryError,
    aliases_of,
    current_version,
    find_bundle,
    find_model,
    find_registered,
    newer_version,
)
from pipelines.registry.registration import register_bundle
from pipelines.retrieval.gallery import Gallery
from pipelines.serving.requirements import pip_requirements
from pipelines.tracking.client import connect
from preprocessing.features.images import load_image
from tests.pipelines.tiny_bundle import EMBED_DIM, IMAGES, write_tiny_bundle
from vse_core.digests import DIGESTS, DigestError, write_digests

TAGS = {"vse.seed": "0", "vse.rsum": "12.00"}


class Registered:
    """A bundle, the database it is registered in, and what registering returned."""

    def __init__(self, folder: Path) -> None:
        self.bundle = write_tiny_bundle(folder / "bundle", is_corrected=True)
        self.uri = f"sqlite:///{folder / 'mlflow.db'}"
        mlflow.set_tracking_uri(self.uri)
        mlflow.set_registry_uri(self.uri)
        self.client = MlflowClient()
        experiment = mlflow.create_experiment("tiny", artifact_location=(folder / "artifacts").as_uri())
        with mlflow.start_run(experiment_id=experiment) as run:
            self.run_id = run.info.run_id
            needed, metrics = pip_requirements(self.bundle), {"dev/rsum": 12.0}
            self.version = register_bundle(self.bundle, "tiny", "abc", needed, TAGS, metrics)
            self.again = register_bundle(self.bundle, "tiny", "abc", needed, TAGS, metrics, "**again**")
        self.artifacts = folder / "artifacts"


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Registered:
    return Registered(tmp_path_factory.mktemp("registry"))


@pytest.fixture(scope="module")
def model(registered: Registered) -> Any:
    return mlflow.pyfunc.load_model(registered.version.uri)


def stacked(output: pd.DataFrame) -> np.ndarray:
    return np.stack(output["embedding"].tolist())


def png(uri: str) -> bytes:
    data = io.BytesIO()
    load_image(uri).save(data, "PNG")
    return data.getvalue()


def test_a_fingerprint_is_registered_once_with_its_origin_metrics_and_alias(registered: Registered) -> None:
    (version,) = registered.client.search_model_versions("name = 'tiny'")
    assert (version.tags, version.run_id) == ({**TAGS, FINGERPRINT_TAG: "abc"}, registered.run_id)
    assert version.description == "**again**"
    assert registered.client.get_model_version_by_alias("tiny", CHALLENGER).version == version.version
    assert registered.again == registered.version == find_registered(registered.client, "tiny", "abc")
    assert registered.version.uri == "models:/tiny/1"
    assert find_registered(registered.client, "tiny", "other") is None
    assert find_registered(registered.client, "another", "abc") is None
    (metric,) = registered.client.get_logged_model(registered.version.model_id).metrics
    assert (metric.key, metric.value, metric.run_id) == ("dev/rsum", 12.0, registered.run_id)


def test_nothing_registered_is_a_pickle(registered: Registered, tmp_path: Path) -> None:
    (archive,) = registered.artifacts.rglob("packages.zip")
    unpacked = tmp_path / "code"
    shutil.unpack_archive(archive, unpacked)
    logged = [path for path in registered.artifacts.rglob("*") if path.is_file() and path != archive]
    files = [*logged, *(path for path in unpacked.rglob("*") if path.is_file())]
    # spaCy names its files, of msgpack and JSON, without endings.
    suffixes = {path.suffix or path.name for path in files if "english" not in path.parts}
    page = {".html", ".css", ".js", ".csv"}  # of the search service and the report, which are part of the code
    words = {".txt", ".xz"}  # WordNet is compressed JSON
    assert suffixes <= {".py", ".typed", ".json", ".npz", ".safetensors", ".faiss", ".yaml", "MLmodel", *page, *words}
    assert not [path for path in files if path.read_bytes()[:2] in {bytes([128, protocol]) for protocol in range(2, 6)}]
    assert not [path for path in files if "__pycache__" in path.parts]


def test_a_model_is_few_files_with_the_same_code_each_time(registered: Registered, tmp_path: Path) -> None:
    # A server takes them one by one.
    assert len([path for path in registered.artifacts.rglob("*") if path.is_file()]) < 40
    (archive,) = registered.artifacts.rglob("packages.zip")
    registration._pack_code(tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()


def test_bundle_and_model_are_found_by_name_and_by_directory(
    registered: Registered, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, bundle = find_bundle("tiny", registered.uri)
    assert name == "tiny/1"
    assert capsys.readouterr().err == "tiny: tiny/1, the newest version, as the model has no champion\n"
    assert len(Gallery.load(bundle / "gallery").records) == IMAGES
    assert find_model("tiny@challenger", registered.uri) == ("tiny/1", bundle / "model")
    assert find_bundle(str(registered.bundle), "unused") == (str(registered.bundle), registered.bundle)
    assert find_model(str(registered.bundle), "unused") == (str(registered.bundle), registered.bundle / "model")
    model = registered.bundle / "model"
    assert find_model(str(model), "unused") == (str(model), model)
    with pytest.raises(RegistryError, match="holds no model"):
        find_model(str(tmp_path), "unused")


@pytest.mark.parametrize("part", BUNDLE_PARTS)
def test_a_bundle_is_one_thing(registered: Registered, tmp_path: Path, part: str) -> None:
    """What is registered is found as it was registered: no part of it may be missing, or be of another model."""
    bundle = shutil.copytree(registered.bundle, tmp_path / "bundle")
    file = max((path for path in (bundle / part).rglob("*.*") if path.name != DIGESTS), key=os.path.getsize)
    file.write_bytes(file.read_bytes()[::-1])
    write_digests(bundle / part)  # the part by itself is in order, as another model's is
    with pytest.raises(DigestError, match=rf"{part}/.* is damaged"):
        find_bundle(str(bundle), "unused")
    shutil.rmtree(bundle / part)
    with pytest.raises((DigestError, RegistryError), match=rf"{part}/.* is missing|holds no model"):
        find_bundle(str(bundle), "unused")


def test_a_bundle_of_an_earlier_format_is_refused_with_what_to_do(registered: Registered, tmp_path: Path) -> None:
    bundle = shutil.copytree(registered.bundle, tmp_path / "bundle")
    (bundle / DIGESTS).unlink()
    with pytest.raises(DigestError, match=r"has format 1, of an earlier version .*: make it again: the command full"):
        find_bundle(str(bundle), "unused")
    for path in bundle.glob(f"*/{DIGESTS}"):
        path.unlink()
    with pytest.raises(DigestError, match="has format 0, of an earlier version"):
        find_bundle(str(bundle), "unused")


def test_a_model_of_another_origin_is_refused(registered: Registered, tmp_path: Path) -> None:
    script = tmp_path / "other.py"
    script.write_text(
        "import mlflow\n\n\nclass Other(mlflow.pyfunc.PythonModel):\n    def predict(self, model_input):\n"
        "        return model_input\n\n\nmlflow.models.set_model(Other())\n"
    )
    with mlflow.start_run(run_id=registered.run_id):
        mlflow.pyfunc.log_model("other", python_model=str(script), pip_requirements=[], registered_model_name="other")
    with pytest.raises(RegistryError, match="was not registered by this pipeline: it has no model, extractor, gallery"):
        find_bundle("other", registered.uri)
    registered.client.delete_registered_model("other")


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"the MLflow database .*absent\.db"):
        find_bundle("tiny", f"sqlite:///{tmp_path / 'absent.db'}")
    assert list(tmp_path.iterdir()) == []


def test_the_address_of_a_database_may_have_options(registered: Registered) -> None:
    assert current_version("tiny", f"{registered.uri}?timeout=60")[0] == "tiny/1"
    assert aliases_of("tiny", f"{registered.uri}?timeout=60") == {"challenger": 1}


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("tiny", "the newest version, as the model has no champion"),
        ("tiny/1", ""),
        ("tiny@challenger", "the challenger"),
        ("models:/tiny", "the newest version, as the model has no champion"),
        ("models:/tiny/1", ""),
    ],
)
def test_references_are_resolved(registered: Registered, reference: str, reason: str) -> None:
    assert current_version(reference, registered.uri) == ("tiny/1", reason)
    assert newer_version("tiny/1", registered.uri) == ""


def test_a_name_means_the_champion_and_a_newer_version_is_told(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = connect(uri)
    client.create_registered_model("shop")
    for number in (1, 2, 3):
        client.create_model_version("shop", str(tmp_path / str(number)), f"{number}" * 32)
    assert current_version("shop", uri) == ("shop/3", "the newest version, as the model has no champion")
    assert newer_version("shop/1", uri) == (
        "shop/1 is used; shop now means shop/3, the newest version, as the model has no champion"
    )
    client.set_registered_model_alias("shop", CHAMPION, "2")
    assert current_version("shop", uri) == ("shop/2", "the champion")
    assert newer_version("shop/1", uri) == "shop/1 is used; shop now means shop/2, the champion"
    assert newer_version("shop/2", uri) == ""
    assert newer_version(str(tmp_path), uri) == ""


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("tinny", "'tinny' is not a registered model; registered models: tiny"),
        ("tiny/4", "no version 4; its versions: 1"),
        ("tiny@champion", "no alias 'champion'; its aliases: challenger"),
        ("tiny@a/b", "cannot read 'tiny@a/b'"),
        ("it's", '"it\'s" is not a registered model'),
    ],
)
def test_references_that_lead_nowhere_say_what_there_is(registered: Registered, reference: str, message: str) -> None:
    with pytest.raises(RegistryError) as caught:
        current_version(reference, registered.uri)
    assert message in str(caught.value)


def test_pyfunc_embeds_texts_and_images_like_the_gallery(registered: Registered, model: Any) -> None:
    gallery = Gallery.load(registered.bundle / "gallery")
    index = range(100, 100 + len(gallery.captions))
    texts = model.predict(pd.DataFrame({"text": [caption.text for _, caption in gallery.captions]}, index=index))
    images = model.predict(pd.DataFrame({"image": [png(record.image_uri) for record in gallery.records]}))
    assert stacked(texts).shape == (len(gallery.captions), EMBED_DIM)
    np.testing.assert_allclose(stacked(texts), gallery.texts_CD.numpy(), atol=1e-5)
    np.testing.assert_allclose(stacked(images), gallery.images_BKD.flatten(1).numpy(), atol=1e-3)
    assert set(texts["views"]) == set(images["views"]) == {1}
    assert gallery.biases is not None
    np.testing.assert_allclose(texts["bias"], gallery.biases.texts_C.numpy(), atol=1e-5)
    np.testing.assert_allclose(images["bias"], gallery.biases.images_B.numpy(), atol=1e-3)
    assert list(texts.index) == list(index)


def test_pyfunc_keeps_the_order_of_mixed_rows(model: Any) -> None:
    """An image is its bytes, base64 or a data URI."""
    data = png("scene://0/1")
    encoded = base64.b64encode(data).decode()
    images = [data, encoded, f"data:image/png;base64,{encoded}"]
    columns = {"text": ["a red ring", None, None, None], "image": [None, *images]}
    text, image, *others = stacked(model.predict(pd.DataFrame(columns)))
    np.testing.assert_allclose([text], stacked(model.predict(pd.DataFrame({"text": ["a red ring"]}))), atol=1e-6)
    for other in others:
        np.testing.assert_allclose(other, image, atol=1e-5)


def test_a_scoring_server_takes_bytes_and_reads_no_file_of_its_machine(model: Any, tmp_path: Path) -> None:
    data, path = png("scene://0/1"), tmp_path / "scene.png"
    path.write_bytes(data)
    client = TestClient(scoring_server.init(model))

    def score(image: str) -> Any:
        return client.post("/invocations", json={"dataframe_records": [{"image": image}]})

    answer = score(base64.b64encode(data).decode())
    expected = stacked(model.predict(pd.DataFrame({"image": [data]})))
    np.testing.assert_allclose([answer.json()["predictions"][0]["embedding"]], expected, atol=1e-6)
    for image in (str(path), f"file://{path}", "scene://0/1", "s3://bucket/image.png"):
        answer = score(image)
        assert answer.status_code == 400, answer.text
        assert "not base64" in answer.text or "not an image" in answer.text


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"text": ["fine", " "]}, "row 1 (' '): the text is empty"),
        (
            {"text": ["a", "b"], "image": [None, "AAAA"]},
            "row 1: give one of 'text' and 'image'; got 'text' and 'image'",
        ),
        ({"text": ["a", None]}, "row 1: give one of 'text' and 'image'; got none"),
        ({"image": ["AAAA"]}, "row 0 ('AAAA'): not an image"),
        ({"image": [b"no image"]}, "row 0: not an image"),
        ({"image": ["/not/there.jpg"]}, "row 0 ('/not/there.jpg'): not base64"),
        ({"image": ["data:image/png,xyz"]}, "row 0 ('data:image/png,xyz'): a data URI must read"),
        ({"image": ["data:image/png;base64,***"]}, "not base64 (Only base64 data is allowed)"),
        ({"image": ["data:image/png;base64," + "A" * 400]}, "AAA...'): not an image"),
        ({"other": ["a"]}, "needs the columns 'text' and 'image', or one of them; got no column"),
    ],
)
def test_pyfunc_names_the_bad_row(model: Any, rows: dict[str, list[Any]], message: str) -> None:
    with pytest.raises(MlflowException) as caught:
        model.predict(pd.DataFrame(rows))
    assert message in str(caught.value)
    assert caught.value.error_code == "INVALID_PARAMETER_VALUE"


@pytest.mark.integration
def test_pyfunc_loads_in_a_process_elsewhere_with_its_own_code(registered: Registered, tmp_path: Path) -> None:
    script = """
import json, sys
import mlflow, pandas as pd
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model("models:/tiny@challenger")
output = model.predict(pd.DataFrame({"text": ["a red ring"]}))
import pipelines, preprocessing, vse_core
print(json.dumps({"embedding": output["embedding"][0],
                  "code": [module.__file__ for module in (pipelines, preprocessing, vse_core)]}))
"""
    unpacked = tmp_path / "temporary"
    unpacked.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["TMPDIR"] = str(unpacked)
    command = [sys.executable, "-c", script, registered.uri]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    output = json.loads(result.stdout.splitlines()[-1])
    assert len(output["embedding"]) == EMBED_DIM
    assert all(file.startswith(str(unpacked)) for file in output["code"])
    assert list(unpacked.glob("vse-code-*")) == []  # it went with the process

"""Checks before a start, against folders, sockets and servers that exist or do not."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.config import ConfigError, PipelineConfig, load_config
from pipelines.runtime.stage import StageError
from pipelines.stages.preflight import check_before_start
from preprocessing.datasets import DatasetError
from tests.dual_encoders import write_dual_encoder
from tests.vision_networks import write_vision_network


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def loaded(folder: Path, *overrides: str) -> PipelineConfig:
    small = "dataset.images={train: 8, dev: 4}"
    return load_config(None, [f"work_dir={folder}/work", small, "training.batch_size=4", *overrides])


def refusal(folder: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        check_before_start(loaded(folder, *overrides))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port of this machine on which nothing listens, kept from others meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture(params=[200, 404])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """An HTTP server that answers every request with one status."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(request.param)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running.server_port, request.param
        running.shutdown()
        thread.join()


def test_a_sound_configuration_passes(tmp_path: Path) -> None:
    check_before_start(loaded(tmp_path))
    assert (tmp_path / "work").is_dir()


def test_a_work_dir_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = refusal(tmp_path, f"work_dir={tmp_path}/file/work")
    assert text == f"work_dir: cannot make the folder {tmp_path}/file/work: Not a directory; name another"


def test_a_split_that_is_not_there(tmp_path: Path) -> None:
    assert (
        refusal(tmp_path, "dataset.eval_split=val")
        == "dataset.eval_split: there is no split 'val'; there are train, dev"
    )


def test_fewer_samples_than_a_batch(tmp_path: Path) -> None:
    text = refusal(tmp_path, "training.batch_size=41")
    assert text == "training.batch_size: 41 is more than the 40 captions of the split 'train'; lower it to 40 or less"
    check_before_start(loaded(tmp_path, "training.batch_size=40"))


def test_a_protocol_of_another_split(tmp_path: Path) -> None:
    check_before_start(loaded(tmp_path, "evaluation.protocols=[retrieval, attack]"))
    with pytest.raises(StageError, match=r"protocol coco_5k, split 'dev': .* among 5,000 images, here are 4; evaluate"):
        check_before_start(loaded(tmp_path, "evaluation.protocols=[retrieval, coco_5k]"))


def test_ratings_that_are_not_there(tmp_path: Path) -> None:
    cxc = ("evaluation.protocols=[retrieval, cxc]", f"evaluation.cxc={tmp_path}")
    with pytest.raises(DatasetError, match=r"Crisscrossed Captions: there is no file .*sis_val\.csv"):
        check_before_start(loaded(tmp_path, *cxc))


def test_a_ray_address_that_does_not_answer(tmp_path: Path, silent_port: int) -> None:
    assert "no Ray head answers" in refusal(tmp_path, f"ray.address=127.0.0.1:{silent_port}")


@pytest.mark.parametrize("address", ["http://127.0.0.1:8265", "127.0.0.1", "127.0.0.1:x"])
def test_what_is_no_ray_address(tmp_path: Path, address: str) -> None:
    assert refusal(tmp_path, f"ray.address='{address}'").startswith(f"ray.address: '{address}' is not ")


def test_more_cores_than_there_are(tmp_path: Path) -> None:
    text = refusal(tmp_path, "features.actors=1000", "features.cpus_per_actor=2")
    assert text.startswith("features.actors: 1000 with features.cpus_per_actor 2 need 2000 CPUs, this machine has ")
    assert "training.gpus_per_worker 99" in refusal(tmp_path, "training.gpus_per_worker=99")


def test_an_mlflow_server_that_is_away(tmp_path: Path, silent_port: int) -> None:
    assert "no MLflow server answers" in refusal(tmp_path, f"tracking.uri=http://127.0.0.1:{silent_port}")


def test_a_server_that_answers(tmp_path: Path, server: tuple[int, int]) -> None:
    port, status = server
    override = f"tracking.uri=http://127.0.0.1:{port}/"
    if status == 200:
        check_before_start(loaded(tmp_path, override))
    else:
        assert "answers, but not as an MLflow server (HTTP 404)" in refusal(tmp_path, override)


def test_a_password_is_not_sent_to_the_machines_of_a_cluster(
    tmp_path: Path, server: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"http://user:planted@127.0.0.1:{server[0]}"
    settings = (f"tracking.uri={uri}", f"ray.address=127.0.0.1:{server[0]}")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    refused = refusal(tmp_path, *settings)
    assert refused.startswith(f"tracking.uri: the password in http://user:***@127.0.0.1:{server[0]} is not sent to")
    assert "set MLFLOW_TRACKING_URI to the whole address on all of them" in refused
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    if server[1] == 200:
        check_before_start(loaded(tmp_path, *settings))
    else:
        assert "(HTTP 404)" in refusal(tmp_path, *settings)


def test_a_database_server_that_is_away(tmp_path: Path, silent_port: int) -> None:
    uri = f"postgresql+psycopg2://user:secret@127.0.0.1:{silent_port}/mlflow"
    text = refusal(tmp_path, f"tracking.uri={uri}")
    assert "no database answers" in text
    assert "secret" not in text


@pytest.mark.parametrize("uri", ["/some/folder", "file:///some/folder", "ftp://x"])
def test_what_is_no_mlflow_address(tmp_path: Path, uri: str) -> None:
    assert f"tracking.uri: '{uri}' is not an address MLflow takes here" in refusal(tmp_path, f"tracking.uri={uri}")


def test_files_of_the_text_encoder(tmp_path: Path) -> None:
    folder = tmp_path / "bert"

    def text(weights: object) -> str:
        return f"model.text={{name: bert, weights: {weights}, learning_rate_factor: 0.1, pooling: {{name: gpo}}}}"

    assert "model.text.weights: there is no folder" in refusal(tmp_path, text(folder))
    folder.mkdir()
    for name, missing in (
        ("config.json", "no configuration (config.json)"),
        ("model.safetensors", "no weights (*.safetensors)"),
        ("vocab.txt", "no tokenizer (tokenizer.json or vocab.txt or vocab.json)"),
    ):
        assert missing in refusal(tmp_path, text(folder))
        (folder / name).touch()
    check_before_start(loaded(tmp_path, text(folder)))
    check_before_start(loaded(tmp_path, text("bert-base-uncased")))
    glove = tmp_path / "glove.txt"
    assert f"model.text.word_vectors: there is no file {glove}" in refusal(tmp_path, f"model.text.word_vectors={glove}")
    glove.touch()
    check_before_start(loaded(tmp_path, f"model.text.word_vectors={glove}"))


@pytest.mark.parametrize("name", ["vit", "clip", "test_efficientnet"])
def test_weights_of_a_backbone_say_how_images_are_prepared(tmp_path: Path, name: str) -> None:
    """In preprocessor_config.json, processor_config.json or timm's config.json; without, training found it out."""
    folder = write_vision_network(tmp_path / name, name)
    settings = (
        "features={extractor: images}",
        f"model.image={{name: backbone, weights: {folder}, image_size: 64, pooling: {{name: gpo}}, "
        "frozen_epochs: 0, learning_rate_factor: 0.1}",
    )
    check_before_start(loaded(tmp_path, *settings))
    for path in folder.glob("*processor_config.json"):
        path.unlink()
    (folder / "config.json").write_text('{"model_type": "bert"}')
    assert f"model.image.weights: {folder} does not say how images are prepared" in refusal(tmp_path, *settings)
    check_before_start(loaded(tmp_path, *settings, "model.image.pixels=imagenet"))


def test_files_of_a_dual_encoder(tmp_path: Path) -> None:
    folder = write_dual_encoder(tmp_path / "clip", "clip", ["a dog"])
    (tmp_path / "clip.yaml").write_text(
        f"preset: dual_encoder\nwork_dir: {tmp_path}/work\nmodel: {{weights: {folder}}}\n"
        "features: {extractor: images}\ndataset: {format: scenes, seed: 0, images: {train: 200, dev: 8}}\n"
    )
    config = load_config(tmp_path / "clip.yaml")
    check_before_start(config)
    (folder / "processor_config.json").write_text('{"processor_class": "CLIPProcessor"}')
    with pytest.raises(ConfigError, match=f"model.weights: {folder} does not say how images are prepared"):
        check_before_start(config)

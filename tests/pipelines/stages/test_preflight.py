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
    check_before_start(loaded(tmp_path, "training.batch_size=41"), trains=False)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("work_dir={folder}/file/work", "work_dir: cannot make the folder {folder}/file/work: Not a directory; name"),
        ("dataset={{format: karpathy, images: /none, annotations: /none.json}}", "dataset: "),
        ("dataset.eval_split=val", "dataset.eval_split: there is no split 'val'; there are train, dev"),
        ("training.batch_size=41", "training.batch_size: 41 is more than the 40 captions of the split 'train'; lower"),
        ("ray.address=127.0.0.1:{port}", "ray.address: no Ray head answers at 127.0.0.1:{port}"),
        (
            "ray.address='http://127.0.0.1:8265'",
            "ray.address: 'http://127.0.0.1:8265' is not the address of a Ray head",
        ),
        ("ray.address='127.0.0.1'", "ray.address: '127.0.0.1' is not the address of a Ray"),
        ("ray.address='127.0.0.1:x'", "ray.address: '127.0.0.1:x' is not an address"),
        (
            "features.actors=9000",
            "features.actors: 9000 with features.cpus_per_actor 1 need 9000 CPUs, this machine has",
        ),
        ("training.initial={folder}", "training.initial: {folder} is not a directory of a model"),
        ("training.gpus_per_worker=99", "training.workers: 1 with training.gpus_per_worker 99 need 99 GPUs"),
        ("tracking.uri=http://127.0.0.1:{port}", "tracking.uri: no MLflow server answers at http://127.0.0.1:{port}"),
        ("tracking.uri=postgresql+psycopg2://user:secret@127.0.0.1:{port}/x", "tracking.uri: no database answers at"),
        ("tracking.uri=file:///some/folder", "tracking.uri: 'file:///some/folder' is not an address MLflow takes here"),
        ("tracking.uri=ftp://x", "tracking.uri: 'ftp://x' is not an address MLflow takes here"),
    ],
)
def test_what_is_not_there_is_one_message(tmp_path: Path, silent_port: int, override: str, message: str) -> None:
    (tmp_path / "file").touch()
    text = refusal(tmp_path, override.format(folder=tmp_path, port=silent_port))
    assert text.startswith(message.format(folder=tmp_path, port=silent_port))
    assert "secret" not in text


def test_a_protocol_of_another_split(tmp_path: Path) -> None:
    check_before_start(loaded(tmp_path, "evaluation.protocols=[retrieval, attack]"))
    with pytest.raises(StageError, match=r"protocol coco_5k, split 'dev': .* among 5,000 images, here are 4; evaluate"):
        check_before_start(loaded(tmp_path, "evaluation.protocols=[retrieval, coco_5k]"))


def test_ratings_that_are_not_there(tmp_path: Path) -> None:
    cxc = ("evaluation.protocols=[retrieval, cxc]", f"evaluation.cxc={tmp_path}")
    with pytest.raises(DatasetError, match=r"Crisscrossed Captions: there is no file .*sis_val\.csv"):
        check_before_start(loaded(tmp_path, *cxc))


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
    assert "set MLFLOW_TRACKING_URI to the complete address on all of them" in refused
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    if server[1] == 200:
        check_before_start(loaded(tmp_path, *settings))
    else:
        assert "(HTTP 404)" in refusal(tmp_path, *settings)


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


def test_parsing_that_has_no_room_is_told_if_there_is_any(tmp_path: Path) -> None:
    check_before_start(loaded(tmp_path, "parsing.cpus_per_actor=9000"))
    told = refusal(tmp_path, "preset=univse", "parsing.cpus_per_actor=9000")
    assert told.startswith("parsing.actors: 1 with parsing.cpus_per_actor 9000 need 9000 CPUs, this machine has")

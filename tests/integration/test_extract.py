"""Extraction end to end on Ray: images that cannot be read, any number of actors, and a driver that is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from PIL import Image

from pipelines.config import PipelineConfig, load_config
from pipelines.stages.extract import plan as extract
from pipelines.stages.runner import run_stages
from preprocessing.shards.index import verify_shard
from preprocessing.shards.reader import ShardReader
from tests.preprocessing.features.arrays import arrays

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures("ray_cluster")

SCENES = (
    "dataset={format: scenes, images: {train: 60, dev: 9}}",
    "features={extractor: grid, weights: tiny_resnet, random_seed: 0, batch_size: 4, shard_size: 6}",
    "training.batch_size=8",
)


@pytest.fixture(autouse=True)
def data_as_it_is_now() -> None:
    """Other tests of this process have had other data under the same configuration."""
    extract._summary.cache_clear()


def shard_bytes(config: PipelineConfig) -> dict[str, bytes]:
    folder = config.work_dir / "extract"
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.glob("*/*/*")
        if path.name != "manifest.json"
    }


def scenes(folder: Path, *overrides: str) -> PipelineConfig:
    return load_config(None, [f"work_dir={folder}", *SCENES, *overrides])


@pytest.fixture(scope="module")
def undisturbed(ray_cluster: str, mlflow_template: Path, tmp_path_factory: pytest.TempPathFactory) -> PipelineConfig:
    """An extraction that nothing has happened to, by one actor."""
    folder = tmp_path_factory.mktemp("undisturbed")
    shutil.copyfile(mlflow_template, folder / "mlflow.db")
    config = scenes(folder)
    run_stages(config, ["extract"])
    return config


def test_shards_hold_what_the_extractor_gives(work_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Oracle: the extractor called directly on single images."""
    from preprocessing.datasets import build_dataset
    from preprocessing.features import build_extractor

    config = scenes(work_dir, "features.actors=2")
    run_stages(config, ["extract"])
    assert "69 images, 345 captions" in capsys.readouterr().out
    plan = extract.plan(config, {})
    assert plan.complete
    extractor = build_extractor("grid", **config.features.options())
    records = build_dataset("scenes", seed=0, images={"train": 60, "dev": 9}).records("dev")
    reader = ShardReader(plan.outputs["dev"], "grid")
    assert len(reader) == 9
    for position, record in enumerate(records):
        (expected,) = arrays(extractor, [extractor.load(record.image_uri)])
        np.testing.assert_allclose(reader.features(position), expected, rtol=1e-2, atol=1e-3)
        assert reader.meta(position)["image_id"] == record.image_id
        assert [caption["text"] for caption in reader.meta(position)["captions"]] == [c.text for c in record.captions]


def test_bytes_do_not_depend_on_the_number_of_actors(work_dir: Path, undisturbed: PipelineConfig) -> None:
    three = scenes(work_dir, "features.actors=3", "features.cpus_per_actor=0.5")
    run_stages(three, ["extract"])
    assert len(shard_bytes(undisturbed)) == 3 * (10 + 2)
    assert shard_bytes(undisturbed) == shard_bytes(three)


def test_only_what_is_missing_or_damaged_is_made_again(tmp_path: Path, undisturbed: PipelineConfig) -> None:
    config = scenes(shutil.copytree(undisturbed.work_dir, tmp_path / "damaged"))
    before = shard_bytes(config)
    train = extract.plan(config, {}).outputs["train"]
    (train / "shard-00001.tar").unlink()
    (train / "shard-00002.json").unlink()
    with (train / "shard-00003.tar").open("r+b") as shard:
        shard.truncate(100)
    times = {path: path.stat().st_mtime_ns for path in train.glob("*.tar")}
    assert extract.plan(config, {}).status == "partly done (9 of 12 shards)"
    run_stages(config, ["extract"])
    assert shard_bytes(config) == before
    renewed = {path.name for path in train.glob("*.tar") if path.stat().st_mtime_ns != times.get(path)}
    assert renewed == {"shard-00001.tar", "shard-00002.tar", "shard-00003.tar"}


def test_another_evaluation_split_leaves_the_training_split_alone(undisturbed: PipelineConfig) -> None:
    other = scenes(undisturbed.work_dir, "dataset.images={train: 60, dev: 9, test: 6}", "dataset.eval_split=test")
    assert extract.plan(other, {}).status == "partly done (10 of 11 shards)"


def flickr(folder: Path, captions: dict[str, list[str]]) -> list[str]:
    """Write the token file and the lists of a Flickr data set; returns the overrides that name it."""
    lines = [f"{name}#{index}\t{text}" for name, texts in captions.items() for index, text in enumerate(texts)]
    (folder / "tokens.txt").write_text("\n".join(lines) + "\n")
    for split in ("train", "dev"):
        (folder / f"{split}.txt").write_text("\n".join(captions) + "\n")
    splits = f"{{train: {folder}/train.txt, dev: {folder}/dev.txt}}"
    return [f"dataset={{format: flickr, images: {folder}, tokens: {folder}/tokens.txt, splits: {splits}}}"]


def test_no_image_stops_the_stage_and_none_disappears(
    work_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    sound, bad = ["sound.jpg", "line.png", "column.png"], ["text.jpg", "missing.jpg"]
    for name, size in zip(sound, ((40, 30), (5000, 1), (1, 5000)), strict=True):
        Image.new("RGB", size).save(folder / name)
    (folder / "text.jpg").write_text("no image")
    captions = {name: ["a red square ."] * 2 for name in [*sound, *bad]} | {"sound.jpg": ["a red square .", " "]}
    config = scenes(work_dir, *flickr(folder, captions), "training.batch_size=2")
    run_stages(config, ["extract"])
    printed = capsys.readouterr().out
    plan = extract.plan(config, {})
    for split in ("train", "dev"):
        reader = ShardReader(plan.outputs[split], "grid")
        assert [reader.meta(image)["image_id"] for image in range(len(reader))] == sound
        manifest = plan.shards[split].directory.read_manifest()
        assert manifest["counts"]["records"] == 5
        assert manifest["counts"]["images"] == 3
        assert manifest["counts"]["captions"] == 5
        assert {item["image_id"] for item in manifest["skipped"]} == {*bad, "sound.jpg"}
        assert all(item["reason"] for item in manifest["skipped"])
    assert "2 empty caption" in printed
    client = MlflowClient(config.tracking_uri)
    experiment = client.get_experiment_by_name(config.experiment.name)
    (run,) = client.search_runs([experiment.experiment_id], "tags.`vse.stage` = 'extract'")
    assert run.data.metrics["extract/images"] == 6
    assert run.data.metrics["extract/skipped"] == 6
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["skipped.json"]


@pytest.mark.nightly
def test_a_driver_that_is_killed(work_dir: Path, undisturbed: PipelineConfig, ray_cluster: str) -> None:
    """`kill -9` in mid-extraction: whole shards are kept, the rest is made, the bytes are those of a quiet run."""
    killed = scenes(work_dir)
    overrides = [f"work_dir={killed.work_dir}", f"ray.address={ray_cluster}", *SCENES]
    command = [sys.executable, str(ROOT / "pipelines" / "extract.py"), *(f"--set={item}" for item in overrides)]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        finished = wait_for(lambda: list((killed.work_dir / "extract").glob("*/*/shard-*.json")), driver)
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
    plan = extract.plan(killed, {})
    assert not plan.complete
    times = {path: path.stat().st_mtime_ns for path in finished}
    run_stages(killed, ["extract"])
    assert shard_bytes(killed) == shard_bytes(undisturbed)
    assert {path: path.stat().st_mtime_ns for path in finished} == times
    for path in (killed.work_dir / "extract").glob("*/*/*.tar"):
        verify_shard(path, deep=True)
    statuses = [run.info.status for run in runs_of(killed)]
    assert statuses == ["FINISHED", "FINISHED"]  # the parent and the child that the killed driver had opened


def wait_for(condition: Callable[[], list[Path]], driver: subprocess.Popen[bytes]) -> list[Path]:
    end = time.monotonic() + 240
    while time.monotonic() < end and driver.poll() is None:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"the driver made no shard; exit status {driver.poll()}")


def runs_of(config: PipelineConfig) -> list[Run]:
    client = MlflowClient(config.tracking_uri)
    experiment = client.get_experiment_by_name(config.experiment.name)
    return list(client.search_runs([experiment.experiment_id]))

"""Estimates by hand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra import sizing
from infra.sizing import Workload

ROOT = Path(__file__).resolve().parents[2]
FIGURES = {
    "sizing": {
        "shards": {"bytes_beyond_the_array": {"image": 1000.0, "caption": 100.0}, "sidecar_bytes_an_image": 50.0},
        "reader": {"kept_bytes_an_image": 10.0, "peak_bytes_an_image": 500.0, "microseconds_an_image": 6.0},
        "sampler": {"kept_bytes_a_caption": 8.0, "peak_bytes_a_caption": 32.0, "nanoseconds_a_caption": 100.0},
        "extractors": {"network": {"input": "224x224", "flops_an_image": 78 * 10**12}},
        "models": {"model": {"parameters": 10**6, "flops_a_pair": 10**9, "embedding": 1000}},
    },
    "samples_per_second": 1280.0,
    "captions_per_second": 500.0,
    "decoded_per_second": 250.0,
    "kernels_seconds_a_step": {"model": 0.02},
    "host_seconds_a_step": {"model": 0.05},
}
LOAD = Workload(1_000_000, 5)


@pytest.fixture(autouse=True)
def round_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "FIGURES", FIGURES)


def test_a_step_lasts_as_long_as_its_longest_part(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sizing.training_step(LOAD, "model", 1) == (0.1, "reading")
    monkeypatch.setattr(sizing, "PAIRS_PER_GPU", 12)
    assert sizing.training_step(LOAD, "model", 1) == (0.02, "kernels")
    assert sizing.training_step(LOAD, "model", 8)[1] == "host"


def test_ranks_gather_the_others_embeddings_and_reduce_all_gradients() -> None:
    embeddings = 2 * 1024 * 1000 * 4
    exchanged = 7 / 8 * embeddings + 2 * 7 / 8 * (embeddings + 4e6)
    assert sizing.training_step(LOAD, "model", 8)[0] == pytest.approx(0.1 + exchanged / 300e9)


def test_shards_that_no_disk_holds_are_fetched_by_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "DISK_BYTES", 1e11)
    monkeypatch.setattr(sizing, "NETWORK_BYTES", 125e6)
    seconds, limit = sizing.training_step(LOAD, "model", 8)
    # An image of five pairs comes once: a batch of 1,024 pairs is a part of 204.8 images of an epoch.
    assert limit == "fetching"
    assert seconds == pytest.approx(204.8 * (36 * 2048 * 2 + 1500) / 125e6, rel=1e-3)


def test_rows_of_one_size() -> None:
    lines = sizing.rows(LOAD)
    assert LOAD.shard_bytes == 1_000_000 * (36 * 2048 * 2 + 1000 + 5 * 100)
    assert lines["shards of 500 images"] == "2,000"
    assert lines["storage: sidecars"] == "50 MB"
    # A million images, each of one second of a GPU.
    assert lines["extraction, GPU-hours (estimate): network, 224x224 pixels"] == "278"
    # 5 million captions at 500 a second.
    assert lines["parsing of captions (UniVSE, VSE-C), core-hours"] == "2.8"
    assert lines["memory of the driver: index of the shards"] == "10 MB"
    assert lines["memory of a rank: peak while drawing it"] == "160 MB"
    assert lines["time to open the shards, once"] == "6.0 s"
    # 5 million pairs, 128 in 0.1 s.
    assert lines["epochs an hour (estimate): model, 1 GPU"] == "0.92 (reading)"


def test_the_package_alone_is_enough(tmp_path: Path) -> None:
    """In the image of the cluster there is no tests/."""
    shutil.copytree(ROOT / "infra", tmp_path / "infra")
    command = [sys.executable, "-m", "infra.sizing", "--images", "1,000"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "storage: shards" in run.stdout

"""Estimates by hand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra import sizing
from infra.sizing import Machines, Measured, Workload

ROOT = Path(__file__).resolve().parents[2]
MEASURED = Measured(
    sizing={
        "shards": {
            "bytes_beyond_the_array": {"image": 1000.0, "caption": 100.0},
            "sidecar_bytes_an_image": 50.0,
            "skipped_bytes_an_image": 100,
        },
        "reader": {"kept_bytes_an_image": 10.0, "peak_bytes_an_image": 500.0, "microseconds_an_image": 6.0},
        "sampler": {"kept_bytes_a_caption": 8.0, "peak_bytes_a_caption": 32.0, "nanoseconds_a_caption": 100.0},
        "listing": {"kept_bytes_an_image": 400.0},
        "extractors": {"network": {"input": "224x224", "flops_an_image": 10**12}},
        "models": {
            "model": {"parameters": 10**6, "flops_a_pair": 10**9, "activation_bytes_a_pair": 10**5, "embedding": 1000}
        },
    },
    samples_per_second=1000.0,
    captions_per_second=500.0,
    decoded_per_second=250.0,
    host_seconds_a_step={"model": 0.05},
)
MACHINES = Machines(peak_tflops=100.0, utilisation=0.1, pairs_per_gpu=100)
LOAD = Workload("load", 1_000_000, 5)


def test_storage_is_arrays_and_what_goes_with_them() -> None:
    assert LOAD.shards == 2000
    assert Workload("load", 501, 1).shards == 2
    assert MEASURED.shard_bytes(LOAD) == 1_000_000 * (36 * 2048 * 2 + 1000 + 5 * 100)


def test_one_gpu_exchanges_nothing() -> None:
    step = sizing.training_step(LOAD, MACHINES, MEASURED, "model", 1)
    # 100 pairs of 1e9 operations and 3 products of 100 x 1000 x 100 at 1e13 a second take 0.01 s; reading takes 0.1 s.
    assert (step.gathered, step.reduced) == (0, 0)
    assert step.seconds == pytest.approx(100 / 1000)
    assert step.limit == "reading"


def test_a_step_lasts_as_long_as_the_host_starts_its_kernels() -> None:
    few = Machines(peak_tflops=100.0, utilisation=0.1, pairs_per_gpu=10)  # read in 0.01 s
    step = sizing.training_step(LOAD, few, MEASURED, "model", 1)
    assert (step.seconds, step.limit) == (0.05, "host")


def test_ranks_gather_the_others_embeddings_and_reduce_all_gradients() -> None:
    step = sizing.training_step(LOAD, MACHINES, MEASURED, "model", 8)
    embeddings = 2 * 800 * 1000 * 4
    assert step.gathered == pytest.approx(embeddings * 7 / 8)
    assert step.reduced == pytest.approx(2 * 7 / 8 * (embeddings + 4e6))
    assert step.seconds == pytest.approx(0.1 + (step.gathered + step.reduced) / 300e9)


def test_shards_that_no_disk_holds_are_fetched_whole_by_every_machine() -> None:
    slow = Machines(peak_tflops=100.0, utilisation=0.1, pairs_per_gpu=100, network_gbit=1.0, disk_tb=0.1)
    step = sizing.training_step(LOAD, slow, MEASURED, "model", 8)
    # An image of five pairs comes once: a batch of 800 pairs is the 160 images' part of an epoch, at 125 MB a second.
    assert step.limit == "fetching"
    exchange = (step.gathered + step.reduced) / 300e9
    assert step.seconds == pytest.approx(160 * (36 * 2048 * 2 + 1500) / 125e6 + exchange)


def test_rows_of_one_size() -> None:
    lines = sizing.rows(LOAD, MACHINES, MEASURED)
    assert lines["shards of 500 images"] == "2,000"
    assert lines["storage: sidecars"] == "50 MB"
    # A million images of 1e12 operations at 1e13 a second.
    assert lines["extraction, GPU-hours (estimate): network, 224x224 pixels"] == "28"
    # 5 million captions at 500 a second.
    assert lines["parsing of captions (UniVSE, VSE-C), core-hours"] == "2.8"
    assert lines["memory of the driver: index of the shards"] == "10 MB"
    assert lines["memory of a rank: peak while drawing it"] == "160 MB"
    assert lines["time to open the shards, once"] == "6.0 s"
    # 5 million pairs, 100 in 0.1 s.
    assert lines["epochs an hour (estimate): model, 1 GPU"] == "0.72 (reading)"


def test_the_package_alone_is_enough(tmp_path: Path) -> None:
    """In the image of the cluster there is no tests/."""
    shutil.copytree(sizing.FIGURES.parent, tmp_path / "infra")
    command = [sys.executable, "-m", "infra.sizing", "--images", "1000"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "storage: shards" in run.stdout


@pytest.mark.parametrize(
    "arguments",
    [["--images", "0"], ["--images", "5", "--feature", "36"], ["--images", "5", "--utilisation", "nan"], []],
)
def test_bad_arguments_end_with_a_message(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        sizing.main(arguments)
    assert ended.value.code not in (0, None)

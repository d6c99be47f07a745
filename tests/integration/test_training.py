"""The main job on Ray: a driver killed in mid-epoch resumes, and the number of workers does not matter."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.tiny_training import STEPS, TINY

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(autouse=True)
def cluster(ray_cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs join the session's cluster: two clusters on one machine disturb each other."""
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster)


def start(work_dir: Path, *settings: str, script: str = "full") -> subprocess.Popen[str]:
    """Start the main job, or one stage, as a user does in a terminal."""
    arguments = [f"--set={setting}" for setting in (f"work_dir={work_dir}", *TINY, *settings)]
    return subprocess.Popen(
        [sys.executable, str(ROOT / "pipelines" / f"{script}.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return output


def losses_of(work_dir: Path) -> list[float]:
    (path,) = work_dir.glob("train/*/losses.jsonl")
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert [entry["step"] for entry in entries] == list(range(1, len(entries) + 1))
    return [entry["loss"] for entry in entries]


def wait_for_losses(work_dir: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0]
        if sum(len(path.read_text().splitlines()) for path in work_dir.glob("train/*/losses.jsonl")) >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"no {count} losses after five minutes")


@pytest.fixture(scope="module")
def undisturbed(ray_cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work_dir = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", ray_cluster)
        output = finish(start(work_dir))
    assert "register" in output
    assert len(losses_of(work_dir)) == STEPS
    return work_dir


def test_a_second_run_does_nothing(undisturbed: Path):
    before = {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*") if path.is_file()}
    output = finish(start(undisturbed))
    assert output.count("up to date") == 6  # five stages and the report
    assert {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*") if path.is_file()} == before


def kill_in_mid_epoch(undisturbed: Path, work_dir: Path) -> None:
    shutil.copytree(undisturbed / "extract", work_dir / "extract")
    process = start(work_dir, script="train")
    wait_for_losses(work_dir, 15, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def test_a_driver_killed_in_mid_epoch_goes_on_with_the_same_losses(undisturbed: Path, tmp_path: Path):
    kill_in_mid_epoch(undisturbed, tmp_path)
    killed_at = len((next(tmp_path.glob("train/*/losses.jsonl"))).read_text().splitlines())
    assert killed_at < STEPS, "the run was over before it could be killed"
    finish(start(tmp_path, script="train"))
    assert losses_of(tmp_path) == pytest.approx(losses_of(undisturbed), abs=1e-6)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)


def flip_features(tar: Path) -> None:
    places = json.loads(tar.with_suffix(".json").read_text())["members"]["grid.npy"]
    data = bytearray(tar.read_bytes())
    data[places["offset"][0] + places["size"][0] - 1] ^= 1
    tar.write_bytes(data)


def reverse_offsets(sidecar: Path) -> None:
    content = json.loads(sidecar.read_text())
    content["members"]["grid.npy"]["offset"].reverse()
    sidecar.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("damaged", "damage", "made_again"),
    [
        ("train/*/best-*/model.safetensors", flip, "evaluate"),
        pytest.param("extract/dev/*/shard-00000.tar", flip_features, "evaluate", marks=pytest.mark.nightly),
        pytest.param("extract/dev/*/shard-00000.json", reverse_offsets, "evaluate", marks=pytest.mark.nightly),
        pytest.param("evaluate/*/gallery/embeddings.safetensors", flip, "index", marks=pytest.mark.nightly),
        pytest.param("index/*/index/images.faiss", flip, "register", marks=pytest.mark.nightly),
    ],
)
def test_damaged_output_ends_the_stage_that_reads_it(
    undisturbed: Path, tmp_path: Path, damaged: str, damage: Callable[[Path], None], made_again: str
):
    for stage in ("extract", "train", "evaluate", "index"):
        shutil.copytree(undisturbed / stage, tmp_path / stage)
    shutil.rmtree(tmp_path / made_again, ignore_errors=True)
    (path,) = tmp_path.glob(damaged)
    damage(path)
    process = start(tmp_path)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 1, output
    assert "Traceback" not in output
    (message,) = (line for line in output.splitlines() if line.startswith("error"))
    assert path.name in message


@pytest.mark.nightly
def test_a_damaged_newest_checkpoint_is_passed_over(undisturbed: Path, tmp_path: Path):
    kill_in_mid_epoch(undisturbed, tmp_path)
    before: list[Path] = []
    while before != (kept := sorted(tmp_path.glob("train/*/checkpoints/step-*"))):
        before = kept
        time.sleep(3)  # the worker dies a moment after its driver
    *_, previous, newest = kept  # a third one if the writer was killed before it dropped what was superseded
    flip(newest / "optimizer.safetensors")
    output = finish(start(tmp_path, script="train"))
    assert f"{newest / 'optimizer.safetensors'} is damaged" in output
    assert f"resumes from the checkpoint before it, {previous}" in output
    assert losses_of(tmp_path) == pytest.approx(losses_of(undisturbed), abs=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [2, 4])
def test_the_number_of_workers_does_not_matter(undisturbed: Path, tmp_path: Path, workers: int):
    shutil.copytree(undisturbed / "extract", tmp_path / "extract")
    finish(start(tmp_path, f"training.workers={workers}", "training.cpus_per_worker=0.25", script="train"))
    assert losses_of(tmp_path) == pytest.approx(losses_of(undisturbed), rel=1e-5, abs=1e-5)

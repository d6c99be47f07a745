"""A dry run prints what would be done and writes nothing, neither here nor on the storage."""

from __future__ import annotations

import runpy
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.config import PipelineConfig
from tests.pipelines.stages.extract.test_checks import configured, flip, make

SCRIPTS = Path(__file__).parents[2] / "pipelines"
SEARCH = "{name: margin, method: random, trials: 2, space: {loss.margin: {uniform: [0.05, 0.4]}}}"
COMMANDS = {
    **{name: [] for name in ("full", "extract", "parse", "train", "evaluate", "index", "register", "retrain")},
    "evaluate --model": ["--model", "model"],
    "promote --rollback": ["--rollback"],
    "extract --verify": ["--verify"],
    "extract --retry-failed": ["--retry-failed"],
    "compare": ["model", "model"],
    "audit": [],
    "audit MODEL": ["model"],
    "tune": ["--search", "search.yaml"],
}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(str(SCRIPTS))
    Path("search.yaml").write_text(SEARCH)
    Path("model").mkdir()
    Path("model", "model.json").write_text("{}")
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


def tree(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    """All files and folders with their times of change and contents; opening a database changes no byte of it."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in sorted(folder.rglob("*"))
    }


def dry_run(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    name = command.partition(" ")[0]
    options = [f"work_dir={folder}/work", "dataset.images={train: 8, dev: 3}", "features.shard_size=3"]
    options += ["training.batch_size=4", *([f"storage.address={folder}/kept"] if (folder / "kept").is_dir() else [])]
    words = [word for option in options for word in ("--set", option)]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--dry-run", *words, *COMMANDS[command]])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
    return int(left.value.code or 0)


def machines(folder: Path, state: str) -> PipelineConfig | None:
    """Bring the folder to a state, with a broken shard where there are any."""
    if state == "nothing is there":
        return None
    config = configured(folder, kept="storage" in state)
    second = make(config)[1]
    flip(second)
    if state == "all is on the storage, and on another machine":
        config.mirror.push(second)
        shutil.rmtree(config.work_dir)
    return config


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "state",
    [
        "nothing is there",
        "shards are on this machine",
        "shards are on this machine and the storage",
        "all is on the storage, and on another machine",
    ],
)
def test_nothing_is_written(
    command: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machines(tmp_path, state)
    before = tree(tmp_path)
    assert dry_run(command, tmp_path, monkeypatch) == 0
    assert tree(tmp_path) == before
    printed = capsys.readouterr().out
    assert printed
    if command == "extract --verify" and state.startswith("shards are"):
        assert "verify: 1 of the shards that are there are broken" in printed
    if command in ("full", "extract") and state != "nothing is there":
        assert "up to date" in printed

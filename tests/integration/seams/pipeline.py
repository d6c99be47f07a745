"""A small pipeline run to its end, and copies of it in which one scenario each runs commands."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from PIL import Image

ROOT = Path(__file__).resolve().parents[3]
MODEL = "scenes"
GALLERY = "holiday"
_SCENES = ROOT / "pipelines" / "config" / "data" / "scenes.yaml"
SETTINGS: dict[str, Any] = {
    "dataset": {"images": {"train": 18, "dev": 6}},
    "features": {"shard_size": 10},
    "model": {"embed_dim": 16, "text": {"word_dim": 8}},
    "training": {"epochs": 2, "batch_size": 32, "log_steps": 1, "warmup": "1 steps"},
}
# Left out of the copies: what Ray leaves.
_UNREAD = shutil.ignore_patterns("ray")
# Columns of MLflow's database with the address of a file.
_ADDRESSES = {
    "experiments": "artifact_location",
    "runs": "artifact_uri",
    "logged_models": "artifact_location",
    "model_versions": "storage_location",
}


@dataclass(frozen=True)
class Result:
    """What came of a command."""

    code: int
    out: str
    err: str

    @property
    def printed(self) -> str:
        """All that it printed."""
        return self.out + self.err

    @property
    def is_internal(self) -> bool:
        """Whether the user saw a traceback or an internal error, or a signal ended it."""
        signs = ("Traceback (most recent call last)", "internal error")
        return self.code < 0 or any(sign in self.printed for sign in signs)


@dataclass(frozen=True)
class Pipeline:
    """A folder: `work` has the outputs, `photos` a data set of images, `outside` is what no scenario may touch."""

    root: Path

    @property
    def work(self) -> Path:
        """The work folder."""
        return self.root / "work"

    @property
    def photos(self) -> Path:
        """Eight photographs in the form of Flickr8k: `images`, `tokens.txt`, `train.txt` and `dev.txt`."""
        return self.root / "photos"

    @property
    def config(self) -> Path:
        """The configuration that the work folder was made with."""
        return self.root / "config.yaml"

    @property
    def tracking(self) -> str:
        """The address of the MLflow database, in which the model `MODEL` has version 1."""
        return f"sqlite:///{self.work}/mlflow.db"

    @property
    def gallery(self) -> Path:
        """The image gallery `GALLERY` of the photographs; a copy names those of the session's one."""
        return self.work / "galleries" / GALLERY

    @property
    def bundle(self) -> Path:
        """The registered model's folder, with model, extractor, gallery and index."""
        (folder,) = self.work.glob("register/*/")
        return folder

    def run(
        self, script: str, *arguments: str | Path, env: Mapping[str, str] | None = None, timeout: float = 120
    ) -> Result:
        """Run a script of `pipelines/` as a user does, in `root`, with a home of its own; `env` adds variables."""
        command = [sys.executable, str(ROOT / "pipelines" / f"{script}.py"), *map(str, arguments)]
        home = {"HOME": str(self.root / "home"), "VSE_WORK_DIR": str(self.work)}
        done = subprocess.run(
            command,
            cwd=self.root,
            env={**os.environ, **home, **(env or {})},
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=timeout,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def copy(self, target: Path) -> Pipeline:
        """Return a copy for one scenario, of files and not links, because MLflow's database is written in place."""
        shutil.copytree(self.root, target, ignore=_UNREAD, symlinks=True)
        copy = Pipeline(target)
        copy._configure()
        with contextlib.closing(sqlite3.connect(copy.work / "mlflow.db")) as database:
            for table, column in _ADDRESSES.items():
                statement = f"UPDATE {table} SET {column} = replace({column}, ?, ?)"
                database.execute(statement, (f"{self.work}/", f"{copy.work}/"))
            database.commit()
        return copy

    def files(self, within: str = ".") -> dict[str, bytes]:
        """Return the contents of its files by their name; those that are links are not followed."""
        paths = (Path(folder) / name for folder, _, names in os.walk(self.root / within) for name in names)
        return {path.relative_to(self.root).as_posix(): _contents(path) for path in paths}

    def _configure(self, settings: Mapping[str, Any] = SETTINGS) -> None:
        config = {"inherits": str(_SCENES), **settings, "work_dir": str(self.work)}
        self.config.write_text(yaml.safe_dump(config), encoding="utf-8")


def make_pipeline(root: Path, settings: Mapping[str, Any] = SETTINGS) -> Pipeline:
    """Run the main job once, as a user does, and index a few photographs."""
    pipeline = Pipeline(root)
    for folder in (pipeline.work, root / "outside", root / "home", root / "tmp", root / "bucket"):
        folder.mkdir(parents=True)
    (root / "outside" / "canary.txt").write_text("untouched\n", encoding="utf-8")
    _write_photos(pipeline.photos)
    pipeline._configure(settings)
    images = ("--images", pipeline.photos / "images", "--name", GALLERY)
    for command in (["full", "--config", pipeline.config], ["index", "--model", MODEL, *images]):
        done = pipeline.run(*map(str, command), timeout=600)
        assert done.code == 0, done.printed
    return pipeline


def _write_photos(folder: Path) -> None:
    """Write eight photographs in the form of Flickr8k: a token file, and a list of names a split."""
    (folder / "images").mkdir(parents=True)
    names = [f"{number}.png" for number in range(8)]
    for number, name in enumerate(names):
        Image.linear_gradient("L").resize((48, 32 + number)).convert("RGB").save(folder / "images" / name)
    tokens = [f"{name}#{order}\tA grey photograph number {order}." for name in names for order in range(2)]
    (folder / "tokens.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    (folder / "train.txt").write_text("\n".join(names[:6]) + "\n", encoding="utf-8")
    (folder / "dev.txt").write_text("\n".join(names[6:]) + "\n", encoding="utf-8")


def _contents(path: Path) -> bytes:
    return str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""

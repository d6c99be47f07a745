"""A small pipeline run to its end, photographs of its own, and copies of both for one hostile case each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml
from PIL import Image

ROOT = Path(__file__).resolve().parents[3]
_SCENES = ROOT / "pipelines" / "config" / "data" / "scenes.yaml"
SETTINGS = {
    "dataset": {"images": {"train": 18, "dev": 6}},
    "features": {"shard_size": 10},
    "model": {"embed_dim": 16, "text": {"word_dim": 8}},
    "training": {"epochs": 2, "batch_size": 32, "log_steps": 1, "warmup": "1 steps"},
}
# Left out of the copies: no case reads them, and they are most of the bytes.
_UNREAD = shutil.ignore_patterns("ray", "pictures", "report.html", "mlartifacts", "mlflow-unsent")


@dataclass(frozen=True)
class World:
    """A folder: `work` has the outputs, `photos` a data set of images, `outside` is what no case may touch."""

    root: Path

    @property
    def work(self) -> Path:
        """The work folder."""
        return self.root / "work"

    def copy(self, target: Path) -> World:
        """Return a copy for one case; files are copied, not linked, because MLflow's database is written in place."""
        shutil.copytree(self.root, target, ignore=_UNREAD, symlinks=True)
        copy = World(target)
        copy._configure()
        return copy

    def files(self, within: str = ".") -> dict[str, bytes]:
        """Return the contents of its files by their name; those that are links are not followed."""
        paths = (Path(folder) / name for folder, _, names in os.walk(self.root / within) for name in names)
        return {path.relative_to(self.root).as_posix(): _contents(path) for path in paths}

    def _configure(self) -> None:
        config = {"inherits": str(_SCENES), **SETTINGS, "work_dir": str(self.work)}
        (self.root / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")


def make_world(root: Path) -> World:
    """Run the main job once, as a user does, and write a few photographs."""
    world = World(root)
    for folder in (world.work, root / "outside", root / "home", root / "tmp", root / "bucket"):
        folder.mkdir(parents=True)
    (root / "outside" / "canary.txt").write_text("untouched\n", encoding="utf-8")
    _write_photos(root / "photos")
    world._configure()
    command = [sys.executable, str(ROOT / "pipelines" / "full.py"), "--config", str(root / "config.yaml")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return world


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

"""What cases run: the scripts, and readers where a whole script would take long for one file."""

from __future__ import annotations

import importlib
import operator
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

from pipelines.runtime.cli import guarded
from tests.integration.seams.pipeline import ROOT


def run(words: list[str]) -> int:
    """Run a script of `pipelines/` or one of `READERS` by its name with arguments, and return the exit status."""
    name, *arguments = words
    if name in READERS:
        return guarded(lambda: READERS[name](*arguments))
    script = ROOT / "pipelines" / f"{name}.py"
    before = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv, sys.path[:] = before
    return 0


def extract_photos(photos: str, shards: str) -> None:
    """Store the images of the training split of a folder like Flickr8k's, and print what was skipped."""
    from preprocessing.datasets import build_dataset
    from preprocessing.extraction.extract import extract_shard, shard_specs
    from preprocessing.features import build_extractor

    folder, target = Path(photos), Path(shards)
    splits = {"train": str(folder / "train.txt")}
    dataset = build_dataset("flickr", images=str(folder / "images"), tokens=str(folder / "tokens.txt"), splits=splits)
    target.mkdir(parents=True, exist_ok=True)
    extractor = build_extractor("images")
    for spec in shard_specs(dataset.records("train"), target, 100, "0" * 64, str(folder / "images")):
        index = extract_shard(spec, extractor, 2)
        sys.stdout.write(f"{index.count} images\n")
        for item in index.skipped:
            sys.stdout.write(f"skipped: {item}\n".encode(errors="backslashreplace").decode())


def pull(bucket: str, work: str, folder: str) -> None:
    """Copy a folder from a storage, as a machine does that has nothing yet."""
    from preprocessing.storage import Mirror

    mirror = Mirror(Path(work), bucket)
    mirror.pull_folder(Path(work) / folder)


def read_dataset(kind: str, split: str, *options: str) -> None:
    """Read all records of a data set, options as `name=value`, `splits.train=value`."""
    from preprocessing.datasets import build_dataset

    values: dict[str, object] = {}
    for option in options:
        key, _, value = option.partition("=")
        if "." in key:
            group, _, key = key.partition(".")
            values.setdefault(group, {})[key] = value  # type: ignore[index]
        else:
            values[key] = value
    dataset = build_dataset(kind, **values)
    sys.stdout.write(f"{sum(1 for _ in dataset.records(split))} records\n")


def newest_checkpoint(run: str) -> None:
    """Find the checkpoint that a training would resume from."""
    from pipelines.training.checkpoints import newest_checkpoint as newest

    sys.stdout.write(f"resumes from {newest(Path(run))}\n")


def read(function: str, path: str) -> None:
    """Read a file with a function that is named by its module: `package.module:Class.load`."""
    module, _, name = function.partition(":")
    found = operator.attrgetter(name)(importlib.import_module(module))(Path(path))
    sys.stdout.write(f"read: {type(found).__name__}\n")


READERS: dict[str, Callable[..., None]] = {
    "extract photos": extract_photos,
    "pull": pull,
    "read dataset": read_dataset,
    "newest checkpoint": newest_checkpoint,
    "read": read,
}

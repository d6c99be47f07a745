"""Damage to every kind of file that a pipeline writes, and the commands that read it.

A file is cut, emptied, removed, has a bit changed, or is another run's file of the same kind. What the commands then
print and write is that of the undamaged pipeline, or they say what is damaged.
"""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.integration.seams.attack import defects, forked, script
from tests.integration.seams.pipeline import GALLERY, MODEL, SETTINGS, Pipeline, Result, make_pipeline

# What is no data: of what Ray, Python and the web page leave, of pictures, and locks.
_NO_DATA = re.compile(r"^work/(ray|locks)/|/pictures/|/plots/|report\.html$|\.lock$|/code/|\.png$|mlflow-unsent")
_SECONDS = 150.0
Command = Callable[[Pipeline], object]


def _again(stage: str, *also: str) -> Command:
    """Run a stage again whose output, and that of others, is gone."""

    def run(pipeline: Pipeline) -> int:
        for name in (stage, *also):
            for folder in (pipeline.work / name).glob("*"):
                shutil.rmtree(folder)
        return script(stage, "--config", pipeline.config)

    return run


def _searched(*options: str) -> Command:
    return lambda pipeline: script("search", *(each.format(pipeline.bundle) for each in options), "a red ring")


def _read_data(pipeline: Pipeline) -> None:
    """Read what training reads: the shards and tables of both splits."""
    from pipelines.runtime.stage import check_outputs
    from preprocessing.shards.index import verify_shard
    from preprocessing.shards.reader import ShardReader

    for folder in sorted(pipeline.work.glob("extract/*/*/")):
        check_outputs(folder)
        for tar in sorted(folder.glob("*.tar")):
            verify_shard(tar, deep=True)
        reader = ShardReader(folder, "grid")
        for image in range(len(reader)):
            print(hashlib.sha256(reader.features(image).tobytes()).hexdigest(), reader.meta(image))
    for folder in sorted(pipeline.work.glob("tables/*/*/")):
        check_outputs(folder)
        print(*(np.load(path).sum() for path in sorted(folder.glob("*.npy"))))


def _read_model(pipeline: Pipeline) -> None:
    """Find the checkpoint from which a training would resume and the best one, and read all of both."""
    from pipelines.training.checkpoints import newest_checkpoint
    from preprocessing.captions.encoder import load_caption_encoder
    from vse_core.digests import check_digests
    from vse_core.models import load_model
    from vse_core.training.state import read_progress

    (run,) = pipeline.work.glob("train/*/")
    (best,) = run.glob("best-*")
    newest = newest_checkpoint(run)
    assert newest is not None
    print(read_progress(newest))
    for folder in (newest, best):
        check_digests(folder)
        load_caption_encoder(folder)
        tensors = load_model(folder).state_dict()
        print(folder, [(name, float(tensor.double().sum())) for name, tensor in tensors.items()])


# Beginnings of names of files -> the commands that read them, the first that fits, and how many kinds of damage.
COMMANDS: dict[str, tuple[int, tuple[Command, ...]]] = {
    "work/extract/(dev|extractors).*json": (3, (_again("evaluate"),)),
    "work/(extract|tables)/": (6, (_read_data,)),
    "work/train/[^/]*/(checkpoints|best)": (6, (_read_model,)),
    "work/train/": (3, (_again("evaluate"), _again("register"))),
    "work/evaluate/.*(manifest|gallery)": (6, (_again("index"),)),
    "work/(evaluate|index)/": (3, (_again("register"),)),
    "work/register/.*/(model|extractor|gallery|index)/": (6, (_searched("--model", "{}"),)),
    "work/mlartifacts/models/": (6, (_searched("--model", MODEL),)),
    "work/mlflow.db": (6, (_searched("--model", MODEL),)),
    "work/galleries/": (6, (_searched("--gallery", GALLERY),)),
    "work/mlartifacts/": (0, ()),
    "work/": (3, (lambda pipeline: script("full", "--config", pipeline.config),)),
}


def _commands(name: str) -> tuple[int, tuple[Command, ...]]:
    return next((found for start, found in COMMANDS.items() if re.match(start, name)), (0, ()))


def _damages(data: bytes, other: bytes | None, draw: random.Random) -> Iterator[tuple[str, bytes | None]]:
    """Yield kinds of damage to a file, and what is in its place: nothing, or other bytes."""
    yield "removed", None
    if not data:
        return
    yield "emptied", b""
    yield "cut", data[: draw.randrange(len(data))]
    for _ in range(2):
        at, bit = draw.randrange(len(data)), draw.randrange(8)
        yield f"bit {bit} of byte {at}", data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
    if other is not None and other != data and not data.startswith(b"SQLite"):  # another registry is one
        yield "another run's", other


def _without_folders(name: str) -> str:
    """Return a name by which the same file of another run is found."""
    return re.sub(r"[0-9a-f]{16,}|(?<=/000001-)[0-9a-f]{8}", "*", name)


def _run(command: Command, pipeline: Pipeline, folder: Path) -> Result:
    """Run a command in a fork, with the environment of the pipeline's own home; folders and seconds are left out."""

    def inside() -> object:
        import os

        os.environ.update(HOME=str(folder / "home"), VSE_WORK_DIR=str(pipeline.work))
        os.chdir(folder)
        return command(pipeline)

    result = forked(inside, _SECONDS)
    out = result.out.replace(str(folder), "ROOT")
    out = re.sub(r"│ *[0-9.]+ *│|[0-9a-f]{32}|models/m-\w+", "│", out)
    return Result(result.code, re.sub(r" +|─+", " ", out), result.err.replace(str(folder), "ROOT"))


def _written(pipeline: Pipeline) -> dict[str, str]:
    """Return digests of the results: the gallery, the index and the registered parts."""
    kinds = ("evaluate", "index", "register")
    files = {name: data for kind in kinds for name, data in pipeline.files(f"work/{kind}").items()}
    return {
        name: hashlib.sha256(data).hexdigest()
        for name, data in files.items()
        if name.endswith((".safetensors", "items.json", "vocabulary.json", ".faiss", ".csv", "extractor.json"))
    }


def _import_all() -> None:
    """Import what commands import, so that a fork of this process need not."""
    import pipelines.inference
    import pipelines.registry
    import pipelines.retrieval
    import pipelines.stages
    import pipelines.tracking

    for package in (pipelines.inference, pipelines.registry, pipelines.retrieval, pipelines.stages, pipelines.tracking):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    importlib.import_module("mlflow.pyfunc")
    importlib.import_module("mlflow.store.tracking.sqlalchemy_store")


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_damaged_files(finished: Pipeline, tmp_path: Path) -> None:
    _import_all()
    second = make_pipeline(tmp_path / "second", {**SETTINGS, "dataset": {**SETTINGS["dataset"], "seed": 1}})
    others = {_without_folders(name): data for name, data in second.files().items()}
    draw = random.Random(42)
    undamaged: dict[tuple[Command, ...], tuple[list[str], dict[str, str]]] = {}

    def results() -> Iterator[tuple[str, Result, Callable[[str], bool]]]:
        for name, data in sorted(finished.files().items()):
            kinds, commands = _commands(name)
            if _NO_DATA.search(name) or not commands:
                continue
            if commands not in undamaged:
                folder = tmp_path / "case"  # where they all are: some names depend on it
                pipeline = finished.copy(folder)
                done = [_run(command, pipeline, folder) for command in commands]
                assert not any(each.code for each in done), done
                undamaged[commands] = [each.out for each in done], _written(pipeline)
                shutil.rmtree(folder)
            damages = list(_damages(data, others.get(_without_folders(name)), draw))
            for damage, found in draw.sample(damages, min(kinds, len(damages))):
                yield f"{name}: {damage}", *_judged(finished, tmp_path / "case", name, found, commands)

    def _judged(
        whole: Pipeline, folder: Path, name: str, found: bytes | None, commands: tuple[Command, ...]
    ) -> tuple[Result, Callable[[str], bool]]:
        pipeline = whole.copy(folder)
        path = folder / name
        path.unlink()
        if found is not None:
            path.write_bytes(found)
        done = [_run(command, pipeline, folder) for command in commands]
        outs, files = undamaged[commands]
        written = _written(pipeline)
        is_right = [each.out for each in done] == outs and all(
            written.get(each) == digest for each, digest in files.items() if each != name
        )
        shutil.rmtree(folder)
        worst = next((each for each in done if each.is_internal), next((each for each in done if each.code), done[0]))
        return worst, lambda _printed: is_right

    found = defects(results())
    assert not found, "\n".join(found)

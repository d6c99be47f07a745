"""Broken shards are found and made again, images that failed are tried once more, all else stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pipelines.config import PipelineConfig, load_config
from pipelines.runtime.commands import command
from pipelines.runtime.stage import StageError
from pipelines.stages.extract import checks
from pipelines.stages.extract import plan as extract
from pipelines.stages.extract import run as extract_run
from pipelines.stages.runner import plan_stages
from preprocessing.extraction.extract import extract_shard
from preprocessing.features.images import ImageError
from preprocessing.shards.index import read_index
from preprocessing.storage.mirror import sidecar_path, table_path

OPTIONS = ("dataset.images={train: 8, dev: 3}", "features.shard_size=3")


class Numbers:
    """Every image is a row of ones; those in `failing` cannot be read."""

    name = "grid"

    def __init__(self, failing: Sequence[str] = ()) -> None:
        self.failing = failing

    def load(self, uri: str) -> int:
        if uri in self.failing:
            raise ImageError("cannot be read: the disk does not answer")
        return 1

    def __call__(self, items: Sequence[Any]) -> list[npt.NDArray[np.float16]]:
        return [np.full((2, 3), item, np.float16) for item in items]

    def identity(self) -> dict[str, Any]:
        return {}


def make(config: PipelineConfig, failing: Sequence[str] = ()) -> list[Path]:
    """Make the shards that are missing, as the stage does; returns them."""
    made = []
    for split in extract.splits_of(config):
        for spec in split.specs(split.missing()):
            extract_shard(spec, Numbers(failing), batch_size=2)
            config.mirror.push(spec.path, table_path(spec.path), sidecar_path(spec.path))
            made.append(spec.path)
        extract_run._write_manifest(split)
    return made


def state(config: PipelineConfig) -> dict[Path, int]:
    shards = [path for split in extract.splits_of(config) for path in split.shards]
    return {path: path.stat().st_mtime_ns for path in shards if path.is_file()}


@pytest.fixture(params=["disk", "storage"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> PipelineConfig:
    """The same shards on this machine alone, and kept on a storage as well."""
    return configured(tmp_path, kept=request.param == "storage")


def configured(tmp_path: Path, kept: bool) -> PipelineConfig:
    """Three shards of at most three images for training, one for evaluation."""
    extract._summary.cache_clear()
    overrides = [f"work_dir={tmp_path}/work", *OPTIONS]
    if kept:
        overrides.append(f"storage.address={tmp_path}/kept")
        (tmp_path / "kept").mkdir()
    return load_config(None, overrides)


def flip(path: Path, place: int = 600) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_whole_shards_stay(config: PipelineConfig, capsys: pytest.CaptureFixture[str]) -> None:
    make(config)
    before = state(config)
    checks.verify(extract.splits_of(config), config.mirror)
    assert state(config) == before
    assert extract.plan(config, {}).complete
    assert capsys.readouterr().out == "verify: 0 of the shards that are there are broken\n"


def test_a_flipped_bit_costs_one_shard(config: PipelineConfig, capsys: pytest.CaptureFixture[str]) -> None:
    _, second, *_ = make(config)
    before, plan = state(config), extract.plan(config, {})
    good = second.read_bytes()
    flip(second)
    if config.mirror.address is not None:
        config.mirror.push(second)
    assert extract.plan(config, {}).complete, "size and sidecar do not tell"
    checks.verify(extract.splits_of(config), config.for_dry_run().mirror)
    assert second in state(config)
    checks.verify(extract.splits_of(config), config.mirror)
    assert capsys.readouterr().out.count(f"{second}: shard {second} has sha256") == 2
    assert set(before) - set(state(config)) == {second}
    assert not extract.plan(config, {}).complete
    assert make(config) == [second]
    assert second.read_bytes() == good
    assert extract.plan(config, {}) == plan


def test_captions_of_another_shard_cost_one_shard(config: PipelineConfig, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, *_ = make(config)
    good = table_path(second).read_bytes()
    table_path(second).write_bytes(table_path(first).read_bytes())
    config.mirror.push(table_path(second))
    checks.verify(extract.splits_of(config), config.mirror)
    assert f"the captions {table_path(second)} are not those in the tar" in capsys.readouterr().out
    assert make(config) == [second]
    assert table_path(second).read_bytes() == good


def test_a_broken_copy_is_taken_from_the_storage(tmp_path: Path) -> None:
    config = configured(tmp_path, kept=True)
    _, second, *_ = make(config)
    good = second.read_bytes()
    flip(second)
    checks.verify(extract.splits_of(config), config.mirror)
    assert second.read_bytes() == good
    assert make(config) == []


def test_images_that_failed_are_tried_once_more(config: PipelineConfig, capsys: pytest.CaptureFixture[str]) -> None:
    split, _ = extract.splits_of(config)
    uris = [record.image_uri for record in split.dataset.records("train")]
    shards = make(config, failing=[uris[4], uris[7]])
    lacking = [shards[1], shards[2]]
    before, plan, graphs = (
        state(config),
        extract.plan(config, {}),
        plan_stages(config, ["parse"], last="parse")["parse"],
    )
    assert "skipped: 2 cannot be read" in plan.size
    checks.retry_failed(extract.splits_of(config), config.for_dry_run().mirror)
    assert state(config) == before
    checks.retry_failed(extract.splits_of(config), config.mirror)
    assert f"{shards[1]}: lacks 1 images, the first {uris[4]}: cannot be read" in capsys.readouterr().out
    assert set(before) - set(state(config)) == set(lacking)
    assert make(config, failing=[uris[7]]) == lacking
    assert [read_index(path).count for path in shards[:3]] == [3, 3, 1]
    # What was made of the features before is not taken for up to date, and the features stand where they stood.
    again = extract.plan(config, {})
    assert again.complete
    assert again.fingerprint != plan.fingerprint
    assert again.outputs == plan.outputs
    assert plan_stages(config, ["parse"], last="parse")["parse"].outputs["train"] != graphs.outputs["train"]
    assert plan_stages(config, ["parse"], last="parse")["parse"].outputs["dev"] == graphs.outputs["dev"]


def test_more_skipped_images_than_allowed_end_the_stage(tmp_path: Path) -> None:
    config = configured(tmp_path, kept=False)
    uris = [record.image_uri for record in extract.splits_of(config)[0].dataset.records("train")]
    with pytest.raises(StageError) as refused:
        make(config, failing=uris[:5])
    assert str(refused.value) == (
        "extract: 5 of the 8 images of train were skipped (5 cannot be read: the disk does not answer), and "
        f"features.max_skipped allows 50%, but never all: check the data set and run "
        f"`{command('extract', '--retry-failed')}` with the same options, or raise the limit, which makes no shard "
        "again"
    )
    assert not extract.plan(config, {}).complete
    raised = load_config(None, [*OPTIONS, f"work_dir={tmp_path}/work", "features.max_skipped=0.7"])
    assert all("dev" in path.parts for path in make(raised))
    assert extract.plan(raised, {}).complete

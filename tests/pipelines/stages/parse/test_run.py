"""The parsing stage: its plan, its shards on a real cluster, what a killed run leaves, what is logged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pipelines.config import ConfigError, PipelineConfig, load_config
from pipelines.runtime.stage import StagePlan
from pipelines.stages.extract import plan as extract
from pipelines.stages.parse import plan as parse
from pipelines.stages.runner import run_stages
from preprocessing.captions.english import SHIPPED
from preprocessing.captions.graph_shards import counts_path

SMALL = ["dataset.images={train: 7, dev: 4}", "features.shard_size=3", "training.batch_size=4", "features.batch_size=4"]


@pytest.fixture(autouse=True)
def data_as_it_is_now() -> None:
    extract._summary.cache_clear()


def loaded(folder: Path, *overrides: str) -> PipelineConfig:
    return load_config(None, [f"work_dir={folder}", *SMALL, *overrides])


def planned(config: PipelineConfig) -> StagePlan:
    return parse.plan(config, {"extract": extract.plan(config, {})})


def test_a_plan_counts(tmp_path: Path) -> None:
    plan = planned(loaded(tmp_path))
    assert (plan.total, plan.done, plan.status, plan.size) == (3 + 2, 0, "to do", "55 captions")


@pytest.mark.parametrize(
    ("override", "changes"),
    [("parsing.actors=2", False), ("parsing.batch_size=9", False), ("seed=9", False), ("dataset.seed=1", True)],
)
def test_what_the_fingerprint_depends_on(tmp_path: Path, override: str, changes: bool) -> None:
    first, second = planned(loaded(tmp_path)), planned(loaded(tmp_path, override))
    assert (first.fingerprint != second.fingerprint) == changes


def test_a_pipeline_of_other_files_gives_other_graphs(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "meta.json").write_text("{}")
    shipped = planned(loaded(tmp_path))
    assert planned(loaded(tmp_path, f"parsing.pipeline={tmp_path}/mine")).fingerprint != shipped.fingerprint


@pytest.mark.parametrize("name", ["parser/model", "tokenizer", "meta.json"])
def test_a_pipeline_that_was_trained_again_gives_other_graphs(tmp_path: Path, name: str) -> None:
    config = loaded(tmp_path, f"parsing.pipeline={shutil.copytree(SHIPPED, tmp_path / 'mine')}")
    before = planned(config).fingerprint
    file = tmp_path / "mine" / name
    file.write_bytes(file.read_bytes() + b" ")
    assert planned(config).fingerprint != before


def test_an_unknown_pipeline_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"parsing\.pipeline: there is no spaCy pipeline 'en_core_web_xy'"):
        planned(loaded(tmp_path, "parsing.pipeline=en_core_web_xy"))


@pytest.fixture(scope="module")
def parsed(ray_cluster: str, mlflow_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The work folder of a parsing that nothing has happened to."""
    folder = tmp_path_factory.mktemp("parsed")
    shutil.copyfile(mlflow_template, folder / "mlflow.db")
    config = loaded(folder)
    run_stages(config, ["extract"])
    run_stages(config, ["parse"])
    return folder


def test_a_damaged_shard_alone_is_made_again(parsed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = loaded(shutil.copytree(parsed, tmp_path / "work"), "parsing.actors=2")
    assert planned(config).complete
    folder = planned(config).outputs["train"]
    shards = sorted(folder.glob("*.tar"))
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in shards}
    manifest = json.loads((folder / "manifest.json").read_text())
    shards[1].write_bytes(b"")
    counts_path(shards[2]).unlink()
    assert (planned(config).done, planned(config).complete) == (3, False)
    run_stages(config, ["parse"])
    assert {path: path.read_bytes() for path in shards} == {path: data for path, (data, _) in before.items()}
    assert shards[0].stat().st_mtime_ns == before[shards[0]][1]
    assert json.loads((folder / "manifest.json").read_text()) == manifest
    assert manifest["counts"]["captions"] == 35
    assert "55 captions" in capsys.readouterr().out


def test_a_split_that_has_grown_keeps_its_graphs(parsed: Path, tmp_path: Path) -> None:
    work_dir = shutil.copytree(parsed, tmp_path / "work")
    before, grown = loaded(work_dir), loaded(work_dir, "dataset.images.train=10")
    run_stages(grown, ["extract"])
    run_stages(grown, ["parse"])
    folders = [planned(config).outputs["train"] for config in (before, grown)]
    manifest = json.loads((folders[1] / "manifest.json").read_text())
    assert (manifest["shards"], manifest["reused_shards"]) == (4, 2)
    assert manifest["counts"]["captions"] == 50
    same = [(folders[0] / name).samefile(folders[1] / name) for name in ("shard-00000.tar", "counts-00001.json")]
    assert same == [True, True]

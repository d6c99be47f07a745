"""docs/extending.md: each example runs to the end, and plugins that do not fit are named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from pipelines import plugins
from pipelines.config import ConfigError, PipelineConfig, load_config
from pipelines.runtime.stage import manifest_in
from pipelines.schema.variants import FAMILIES
from pipelines.stages.extract import run as extract
from pipelines.stages.extract.identity import extractor_options
from pipelines.stages.extract.plan import Split
from pipelines.stages.runner import known_stages, plan_stages, run_stages
from pipelines.stages.train import run as train
from pipelines.training.readers import open_splits
from pipelines.training.trainer import Trainer
from pipelines.training.worker import TrainingJob
from preprocessing.captions.encoder import load_caption_encoder
from preprocessing.datasets import DATASET_FORMATS, build_dataset
from preprocessing.features import EXTRACTORS
from preprocessing.features.images import read_image_bytes
from tests.pipelines.training.by_hand import Quiet
from vse_core import registry
from vse_core.evaluation.recall import chance_rsum
from vse_core.models import load_model

PAGE = Path(__file__).resolve().parents[1] / "docs" / "extending.md"
FILES = dict(re.findall(r'```\w+ title="([\w.]+)"\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL))
EXAMPLES = [name.removesuffix(".yaml") for name in FILES if name.endswith(".yaml")]
Pipeline = Callable[[Path], PipelineConfig]
BASE: dict[str, Any] = {
    "dataset": {"format": "scenes", "images": {"train": 12, "dev": 4}},
    "features": {"extractor": "grid", "weights": "tiny_resnet", "random_seed": 0},
    "vocabulary": {"min_count": 1},
    "model": {"embed_dim": 16, "text": {"word_dim": 8}},
    "training": {"epochs": 1, "batch_size": 20, "warmup": "1 step"},
}


@pytest.fixture(autouse=True)
def unloaded() -> Iterator[None]:
    """Forget the plugins of a test at its end."""
    tables: list[dict[Any, Any]] = [variants.classes for variants in FAMILIES.values()]
    tables += [DATASET_FORMATS, EXTRACTORS, registry._ADDED, registry._ORIGINS, plugins._LOADED]
    before = [dict(table) for table in tables]
    kinds, stages = list(plugins.KINDS), list(plugins.STAGES)
    yield
    plugins.KINDS[:], plugins.STAGES[:] = kinds, stages
    for table, content in zip(tables, before, strict=True):
        for key in table.keys() - content.keys():
            del table[key]
    for name in EXAMPLES:
        sys.modules.pop(name, None)
    plugins._load_installed.cache_clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the examples of the page, photographs, and a small configuration below each."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(f"inherits: base.yaml\n{text}" if name.endswith("yaml") else text)
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(BASE))
    for split, images in BASE["dataset"]["images"].items():
        (tmp_path / "photos" / split).mkdir(parents=True)
        for number, record in enumerate(build_dataset("scenes", seed=0, images={split: images}).records(split)):
            image = tmp_path / "photos" / split / f"{number}.jpg"
            image.write_bytes(read_image_bytes(record.image_uri))
            image.with_suffix(".txt").write_text("\n".join(caption.text for caption in record.captions))
    return tmp_path


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch, work_dir: Path) -> Pipeline:
    """Runs the pipeline of a configuration in this process, instead of Ray's."""

    def make_shards(config: PipelineConfig, splits: list[Split], missing: list[set[Path]], tracker: object) -> None:
        options = extractor_options(config.features)
        actor = extract._Extraction(config.features.extractor, options, 8, 1, 60.0, config.mirror)
        actor.prepare()
        for split, shards in zip(splits, missing, strict=True):
            assert all(list(actor.work(spec)) for spec in split.specs(shards))

    def fit(job: TrainingJob, *others: object) -> dict[str, Any]:
        settings = job.settings
        with open_splits(settings.mirror, settings.feature, None, job.train, job.evaluation) as (train, dev):
            encoder = load_caption_encoder(job.folder.path)
            here = job.folder.path, torch.device("cpu"), Quiet(), lambda metrics: None, ("dev", "0")
            trainer = Trainer(settings, train, dev, encoder, *here)
            history = list(trainer.run())
            chance = chance_rsum(dev.reader.caption_counts.tolist())
        return {"history": history, "chance": chance, "steps_per_epoch": trainer.steps_per_epoch}

    def run(file: Path) -> PipelineConfig:
        config = load_config(file, [f"work_dir={work_dir}"])
        run_stages(config, [name for name in known_stages() if name not in ("index", "register")])
        return config

    monkeypatch.setattr(extract, "_make_shards", make_shards)
    monkeypatch.setattr(train, "fit", fit)
    return run


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_runs_to_the_end(name: str, folder: Path, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    plans = plan_stages(pipeline(folder / f"{name}.yaml"))
    metrics = manifest_in(plans["evaluate"].directory)["metrics"]
    assert 0 <= metrics["rsum"] <= 600
    if name == "by_length":
        assert {"by_length/short", "by_length/long"} <= metrics.keys()
    if name == "arrays":
        assert np.load(plans["arrays"].output("images")).dtype == np.float16
    if name == "median":
        model = plans["train"].output("best")
        assert isinstance(load_model(model).image_encoder.pooling, sys.modules["median"].Median)
        registry._ORIGINS.clear()
        with pytest.raises(ValueError, match=r"needs 'median' of the plugin \S+/median.py: install"):
            load_model(model)


def test_an_installed_package_joins_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch):
    information = folder / "median_pooling-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: median-pooling\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[vse.plugins]\nmedian = median\n")
    monkeypatch.syspath_prepend(folder)
    assert load_config(folder / "base.yaml", ["model.image.pooling={name: median}"]).plugins == ()
    with pytest.raises(ConfigError, match=r"must be one of .*gcn, median; got 'medain'.*did you mean median\?"):
        load_config(folder / "base.yaml", ["model.image.pooling={name: medain}"])


def test_other_processes_load_the_same_plugins(folder: Path, monkeypatch: pytest.MonkeyPatch):
    assert plugins.worker_environment() == {}
    load_config(folder / "median.yaml")
    environment = plugins.worker_environment()
    assert environment["py_modules"] == [str(folder / "median.py")]
    statement = (
        "import vse_core.registry, pipelines.config as c; c.load_plugins(); print(vse_core.registry.added('pooling'))"
    )
    variables = {**os.environ, **environment["env_vars"]}
    command = [sys.executable, "-c", statement]
    assert "median.Median" in subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout


def test_a_changed_plugin_changes_the_fingerprints_of_its_stages(folder: Path):
    settings = load_config(folder / "median.yaml").model
    before = plugins.sources(settings)
    assert plugins.sources(load_config(folder / "base.yaml").model) == {}
    plugins._LOADED.clear()
    plugins._OF_SETTINGS.clear()
    del sys.modules["median"]
    FAMILIES["pooling"].classes.pop("median")
    (folder / "median.py").write_text(FILES["median.py"] + "# changed\n")
    after = plugins.sources(load_config(folder / "median.yaml").model)
    assert before.keys() == after.keys() == {"plugins"}
    assert before != after


def test_each_of_several_packages_has_a_digest(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """All their files are called __init__.py."""
    monkeypatch.syspath_prepend(folder)
    source = FILES["median.py"]
    for name in ("one", "other"):
        (folder / f"{name}_parts").mkdir()
        text = source.replace('"median"', f'"{name}"')
        assert text != source
        (folder / f"{name}_parts" / "__init__.py").write_text(text)
    pools = "model={image: {pooling: {name: one}}, text: {pooling: {name: other}}}"
    config = load_config(folder / "base.yaml", ["plugins=[one_parts, other_parts]", pools])
    assert plugins.sources(config.model)["plugins"].keys() == {"one_parts", "other_parts"}


MISTAKES = {
    "plugins: 5": "plugins: must be a list of modules, or of Python files, got 5",
    "plugins: [/absent/parts.py]": "plugins: /absent/parts.py cannot be imported: ModuleNotFoundError",
    "plugins: [absent_parts]": "plugins: absent_parts cannot be imported: ModuleNotFoundError",
    "plugins: [broken]": "broken.py cannot be imported: ZeroDivisionError: division by zero",
    "plugins: [empty]": "empty.py is not a plugin: it has no function register(vse)",
    "plugins: [median, again]": "again.py: it adds the pooling 'median', which the plugin",
    "plugins: [json]": "json.py: Python knows another module as json; rename the file",
    "evaluation: {added: [{name: x}]}": "evaluation.added.0.name: must be one of those that plugins add, none so far",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_plugins_that_do_not_fit_are_named(text: str, folder: Path):
    code = {"broken": "1 / 0", "empty": "", "json": "", "again": FILES["median.py"]}
    for name, content in code.items():
        (folder / f"{name}.py").write_text(content)
    (folder / "mistake.yaml").write_text(f"inherits: base.yaml\n{text}")
    with pytest.raises(ConfigError, match=re.escape(MISTAKES[text])):
        load_config(folder / "mistake.yaml")

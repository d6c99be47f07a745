"""Upgrade: what an earlier version made is taken up, or refused in one sentence that names its format and a remedy."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

from pipelines.config import PipelineConfig, load_config
from pipelines.evaluation import Rsum, commands
from pipelines.exports import export
from pipelines.registry.models import CHALLENGER, CHAMPION, FINGERPRINT_TAG, aliases_of, registry_client
from pipelines.registry.registration import register_bundle
from pipelines.retraining import promotion, retrain
from pipelines.retrieval import search
from pipelines.runtime.cli import guarded
from pipelines.runtime.stage import MANIFEST
from pipelines.serving import serve
from tests.integration.seams.pipeline import GALLERY, MODEL, Pipeline
from tests.pipelines.tiny_bundle import write_tiny_bundle
from vse_core.digests import DIGESTS, file_digest

ROOT = Path(__file__).resolve().parents[3]
RELEASE = "873cc72540ddb88fec979909f01acd63a9d064e7"  # the last one before digests.json
REFUSED = r"^error: .*tiny/1 has format {}, of an earlier version .*this version reads format 2: .*the command full"


@pytest.fixture(scope="module", params=[0, 1], ids=["before there were digests", "before parts were bound"])
def upgraded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, mlflow_template: Path
) -> tuple[PipelineConfig, int]:
    """A work folder whose champion, version 1, was registered in an earlier format, and version 2 today; the format."""
    work = tmp_path_factory.mktemp("upgrade")
    shutil.copyfile(mlflow_template, work / "mlflow.db")
    config = load_config(None, [f"work_dir={work}", "name=tiny"])
    mlflow.set_tracking_uri(config.tracking_uri)
    mlflow.set_registry_uri(config.tracking_uri)
    experiment = mlflow.create_experiment("tiny", artifact_location=(work / "artifacts").as_uri())
    bundle = write_tiny_bundle(work / "bundle")
    with mlflow.start_run(experiment_id=experiment):
        register_bundle(bundle, "tiny", "old", [], {}, {})
        for path in (work / "artifacts").rglob(DIGESTS):
            if request.param == 1 and path.parent.name != "artifacts":
                digests = json.loads(path.read_text())["files"]
                path.write_text(json.dumps(digests))
            else:
                path.unlink()
        register_bundle(bundle, "tiny", "new", [], {}, {})
    registry_client(config.tracking_uri).set_registered_model_alias("tiny", CHAMPION, "1")
    return config, request.param


@pytest.fixture
def command(upgraded: tuple[PipelineConfig, int], monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run the main function of a command as a user does; returns its exit status."""

    def run(main: Callable[[], None], *arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["command", *arguments])
        return guarded(main)

    monkeypatch.setenv("VSE_WORK_DIR", str(upgraded[0].work_dir))
    return run


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (search.main, ["--model", "tiny", "a red ring"]),
        (serve.main, ["--model", "tiny"]),
        (export.main, ["--model", "tiny@champion", "--output", "exported"]),
        (commands.compare_main, ["tiny/1", "tiny/2"]),
        (commands.evaluate_main, ["--model", "tiny/1"]),
        (promotion.main, ["--set", "name=tiny", "--model", "tiny/1"]),
    ],
    ids=lambda value: value.__module__.rpartition(".")[2] if callable(value) else "",
)
def test_an_old_model_is_refused_in_one_sentence(
    upgraded: tuple[PipelineConfig, int],
    command: Callable[..., int],
    main: Callable[[], None],
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(main, *arguments) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert re.search(REFUSED.format(upgraded[1]), message), message
    assert "damaged" not in message
    assert "restore" not in message


def test_an_old_champion_counts_as_none(
    upgraded: tuple[PipelineConfig, int], command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    config, uri = upgraded[0], upgraded[0].tracking_uri
    assert retrain._starting_model(config) == {"champion": None, "version": None}
    assert "tiny/1, the champion, cannot be loaded: training starts from scratch" in capsys.readouterr().err
    rsum = Rsum(200.0, 190.0, 210.0, chance=6.0)
    assert promotion.promote("tiny", uri, {}, pytest.fail, lambda _: rsum).promoted
    assert "tiny: the champion, version 1, cannot be loaded and counts as none" in capsys.readouterr().err
    assert aliases_of("tiny", uri) == {CHAMPION: 2, CHALLENGER: 2}
    assert retrain._starting_model(config) == {"champion": 2, "version": 2}
    assert command(promotion.main, "--set", "name=tiny", "--clear") == 0
    assert aliases_of("tiny", uri) == {CHALLENGER: 2}


def written_before(pipeline: Pipeline, found: int) -> None:
    """Turn what the commands of today have written into what those of an earlier format wrote."""
    # Manifests come last: they list the digests of other records.
    for path in sorted(pipeline.work.rglob("*.json"), key=lambda path: path.name == MANIFEST):
        record = json.loads(path.read_text())
        if not isinstance(record, dict) or not {"format", "sha256"} <= record.keys():
            continue
        content = {key: value for key, value in record.items() if key not in ("format", "sha256")}
        if path.name == DIGESTS and (found == 0 or path.parent.name == "artifacts"):
            path.unlink()
            continue
        if path.name == MANIFEST:
            listed = [name for name in content.pop("digests") if "/" not in name and name != DIGESTS]
            content |= {"digests": {name: file_digest(path.parent / name) for name in listed}} if found else {}
        path.write_text(json.dumps(content["files"] if path.name == DIGESTS else content))
    # Under another fingerprint, with parts that nothing bound.
    shutil.rmtree(pipeline.work / "register")
    MlflowClient(pipeline.tracking, pipeline.tracking).set_model_version_tag(MODEL, "1", FINGERPRINT_TAG, "earlier")


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_work_folder_and_a_gallery_of_the_format_before(pipeline: Pipeline) -> None:
    """Nothing is made again but the registered model, which full.py registers again; the gallery says what to do."""
    written_before(pipeline, 1)
    refused = pipeline.run("search", "--gallery", GALLERY, "a red ring")
    again = ["--name", GALLERY, "--model", MODEL]
    assert refused.code == 1
    assert "scenes/1 has format 1, of an earlier version" in refused.err
    assert re.search(rf"; then index the images again: .*index.* {' '.join(again)}$", refused.err.rstrip())
    done = pipeline.run("full", "--config", pipeline.config)
    assert done.code == 0, done.printed
    for stage in ("extract", "train", "evaluate", "index"):
        assert re.search(rf"{stage} +│ up to date", done.out), done.out
    assert "scenes version 2" in done.out
    assert pipeline.run("index", *again).code == 0
    found = pipeline.run("search", "--gallery", GALLERY, "a red ring")
    assert found.code == 0, found.printed


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_work_folder_from_before_there_were_digests(pipeline: Pipeline) -> None:
    """Shards are reused; a training is not, and says what to remove, after which all is made."""
    written_before(pipeline, 0)
    shards = {path: path.stat().st_mtime_ns for path in pipeline.work.glob("extract/*/*/*.tar")}
    refused = pipeline.run("full", "--config", pipeline.config)
    assert refused.code == 1
    assert "restore" not in refused.err
    message = r"no checkpoint of this run is valid .*has format 0, of an earlier version.*: remove (\S+) to train"
    (checkpoints,) = re.findall(message, refused.err)
    shutil.rmtree(checkpoints)
    done = pipeline.run("full", "--config", pipeline.config, timeout=300)
    assert done.code == 0, done.printed
    assert shards == {path: path.stat().st_mtime_ns for path in pipeline.work.glob("extract/*/*/*.tar")}
    assert pipeline.run("search", "--model", MODEL, "a red ring").code == 0


@pytest.fixture
def old_code(tmp_path: Path) -> Path:
    """The code of the release before there were digests, from this repository's history."""
    archive = subprocess.run(["git", "archive", RELEASE], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"this clone has no history: git fetch --unshallow ({archive.stderr.decode().strip()})")
    (tmp_path / "old").mkdir()
    subprocess.run(["tar", "-x", "-C", str(tmp_path / "old")], input=archive.stdout, check=True)
    return tmp_path / "old"


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_what_the_release_before_digests_has_made(old_code: Path, tmp_path: Path) -> None:
    """Made by that release: trained, registered, promoted. Today's commands name what helps, and it does help."""
    settings = [f"work_dir={tmp_path / 'work'}", "dataset.images={train: 60, dev: 20}", "features.shard_size=50"]
    settings += ["model.embed_dim=32", "model.text.word_dim=16", "training.epochs=2", "training.batch_size=32"]
    options = [word for setting in settings for word in ("--set", setting)]

    def run(code: Path, *arguments: str) -> tuple[int, str]:
        environment = {**os.environ, "PYTHONPATH": str(code), "VSE_WORK_DIR": str(tmp_path / "work")}
        script = [sys.executable, f"pipelines/{arguments[0]}.py", *arguments[1:]]
        done = subprocess.run(
            script, cwd=code, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        return done.returncode, done.stdout + done.stderr

    for arguments in (["full", *options], ["promote", *options]):
        code, printed = run(old_code, *arguments)
        assert code == 0, printed
    for arguments in (
        ["search", "--model", "scenes", "a red circle"],
        ["serve", "--model", "scenes"],
        ["promote", *options, "--model", "scenes/1"],
        ["evaluate", *options, "--model", "scenes/1"],
    ):
        code, printed = run(ROOT, *arguments)
        assert code == 1, printed
        assert "scenes/1 has format 0, of an earlier version" in printed
        assert "restore" not in printed
    code, printed = run(ROOT, "retrain", *options)
    assert code == 0, printed
    assert "scenes/1, the champion, cannot be loaded: training starts from scratch" in printed
    assert re.search(r"80 images, 400 captions", printed)
    assert run(ROOT, "search", "--model", "scenes/2", "a red circle")[0] == 0
    assert run(ROOT, "compare", "scenes/2", "scenes/2", *options)[0] == 0

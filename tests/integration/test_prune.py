"""What `vse prune` leaves of a made-up work folder, on a disk and on S3: nine nights, of which some are needed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from mlflow import MlflowClient

from pipelines.config import PipelineConfig, TrackingConfig, load_config
from pipelines.registry.in_use import in_use
from pipelines.registry.models import FINGERPRINT_TAG
from pipelines.retention.choice import Rules
from pipelines.retention.prune import main, prune
from pipelines.retraining.journal import Journal
from pipelines.retraining.promotion import BEFORE_TAG
from pipelines.runtime.lock import exclusive
from pipelines.runtime.outputs import RunOutputs, read_outputs, write_outputs
from pipelines.runtime.stage import StageDir
from preprocessing.storage.atomic import write_json_atomic
from preprocessing.storage.base import BusyError, StorageError
from preprocessing.storage.mirror import Mirror, lock_file
from vse_core.digests import sealed

NIGHTS = 9
# Registered; 2 is of a gallery, 3 the champion before, 4 champion, 5 of a service; night 7 failed, 8 was killed.
VERSIONS = (1, 2, 3, 4, 5, 6)
# All versions of the data have it; on a storage it is in the folder of the first.
SHARED = "shard-00000.tar"


class Shop:
    """A work folder, and what the nights have made in it."""

    def __init__(self, config: PipelineConfig, artifacts: Path) -> None:
        self.config, self.mirror, self.root = config, config.mirror, config.work_dir
        self.client = MlflowClient(config.tracking_uri, config.tracking_uri)
        self.experiment = self.client.create_experiment(config.experiment.name, artifacts.as_uri())
        self.client.create_registered_model("shop")
        for night in range(1, NIGHTS + 1):
            self._night(night)
        for split, fingerprint in (("train", NIGHTS // 2), ("dev", 0)):
            newest = self.root / "extract" / split / "newest-1.json"
            newest.parent.mkdir(exist_ok=True)
            write_json_atomic(newest, sealed({"fingerprint": f"{fingerprint:016}"}))
            self.mirror.push(newest)
        self.client.create_registered_model("somebody's")
        self.client.create_model_version("somebody's", "file:///elsewhere")
        self.client.set_registered_model_alias("shop", "champion", "4")
        self.client.set_registered_model_alias("shop", "challenger", "6")
        self.client.set_model_version_tag("shop", "4", BEFORE_TAG, "3")
        (self.root / "galleries" / "holiday").mkdir(parents=True)
        self.gallery = self.root / "galleries" / "holiday" / "gallery.json"
        write_json_atomic(self.gallery, sealed({"model": "shop/2"}))
        self.mirror.push(self.gallery)
        if self.mirror.address:  # another machine's
            self.gallery.unlink()

    def _night(self, night: int) -> None:
        prints = {name: hashlib.sha256(f"{name} {night}".encode()).hexdigest() for name in ("train", "register", "run")}
        run = self.client.create_run(self.experiment, tags={"vse.fingerprint": prints["run"]}).info
        self.client.log_text(run.run_id, "x" * 100, "card.md")
        folders = [f"extract/train/{night // 2:016}", f"extract/dev/{0:016}"]  # two nights each have the same data
        for name in ("train", "register") if night <= len(VERSIONS) else ("train",):
            stage = StageDir(self.root, name, prints[name], self.mirror)
            (stage.create() / "weights").write_bytes(bytes(1000))
            self.mirror.push(stage.path / "weights")
            if night != NIGHTS - 1:
                stage.complete({}, ["weights"])
            folders.append(stage.path.relative_to(self.root).as_posix())
        shards = StageDir(self.root, "extract/train", f"{night // 2:016}", self.mirror)
        (shards.create() / "shard").write_bytes(bytes(500))
        made = ["shard"]
        if night == 1:
            (shards.path / SHARED).write_bytes(bytes(100_000))
            made.append(SHARED)
        elif self.mirror.address and night > 1:
            first = shards.path.parent / f"{0:016}"
            self.mirror.share(first, shards.path, {SHARED: self.mirror.stored(first)[SHARED]})
        shards.complete({}, made)
        journal = Journal(self.root / "retrain" / "shop", self.mirror)
        ended = datetime(2026, 1, night, tzinfo=UTC)
        if night <= len(VERSIONS):
            tags = {FINGERPRINT_TAG: prints["register"], "vse.train_fingerprint": prints["train"]}
            model = self.client.create_logged_model(self.experiment, "shop", run.run_id)
            Path(model.artifact_location.removeprefix("file://")).mkdir(parents=True)
            self.client.create_model_version("shop", model.artifact_location, run.run_id, tags)
            journal.finish(
                prints["run"], {"outcome": "refused", "ended": ended.isoformat()} | {"identity": prints["run"]}
            )
        folders += [f"pipelines/{prints['run'][:16]}", f"retrain/shop/{prints['run'][:16]}"]
        report = self.root / "pipelines" / prints["run"][:16] / "report.html"
        report.parent.mkdir(parents=True)
        report.write_text("<p>")
        self.mirror.push(report)
        record = RunOutputs(model="shop", at=ended - timedelta(hours=1), folders=folders)
        write_outputs(self.mirror, self.root / "pipelines" / prints["run"][:16], record)

    @property
    def tracking(self) -> TrackingConfig:
        return TrackingConfig(uri=self.config.tracking_uri)

    @property
    def versions(self) -> set[int]:
        return {int(version.version) for version in self.client.search_model_versions("name = 'shop'")}

    def nights(self, folder: str) -> set[int]:
        """The nights whose folder is there."""
        names = {hashlib.sha256(f"{folder} {night}".encode()).hexdigest()[:16]: night for night in range(1, NIGHTS + 1)}
        top = {"run": "pipelines"}.get(folder, folder)
        stored = self.mirror.stored(self.root / top) if self.mirror.address else ()
        here = {path.relative_to(self.root / top).parts[0] for path in (self.root / top).rglob("*") if path.is_file()}
        return {names[name.split("/")[0]] for name in (*here, *stored)}


@pytest.fixture(params=["disk", "s3"])
def shop(
    request: pytest.FixtureRequest,
    work_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bucket: str,
    s3_client: None,
) -> Iterator[Shop]:
    monkeypatch.setenv("VSE_WORK_DIR", str(tmp_path / "of the service"))
    storage = [f"storage.address={bucket}/{tmp_path.name}"] if request.param == "s3" else []
    made = Shop(load_config(None, [f"work_dir={work_dir}", "name=shop", *storage]), tmp_path / "artifacts")
    with in_use("shop/5", made.config.tracking_uri):
        yield made


def test_what_is_needed_stays(shop: Shop, tmp_path: Path) -> None:
    told = prune(shop.config, Rules(keep=1), is_real=False)
    assert told.startswith(f"would remove 1 runs, {'0.0' if shop.mirror.address else '0.1'} MB of ")
    assert shop.versions == set(VERSIONS)
    if shop.mirror.address:  # a machine with an empty disk
        other = shop.config.model_copy(update={"work_dir": tmp_path / "other", "tracking": shop.tracking})
        assert prune(other, Rules(keep=1), is_real=False) == told
    prune(shop.config, Rules(keep=1), is_real=True)
    assert shop.versions == {2, 3, 4, 5, 6}
    assert shop.nights("train") == shop.nights("run") == {2, 3, 4, 5, 6, 7, 8, 9}
    assert len(list(tmp_path.glob("artifacts/*"))) - 1 == len(shop.client.search_runs([shop.experiment], "", 3)) == 8
    assert (
        len(list(tmp_path.glob("artifacts/models/*"))) == len(shop.client.search_logged_models([shop.experiment])) == 5
    )
    # The shards of night 1 are those of no other, that of night 2 of two.
    assert {path.name for path in shop.root.glob("extract/train/0*")} == {f"{number:016}" for number in range(1, 5)}
    assert not list(shop.root.glob("locks/train/*"))
    assert all(shop.mirror.has(shop.root / f"extract/train/{number:016}" / SHARED) for number in range(1, 5)) == bool(
        shop.mirror.address
    )
    assert prune(shop.config, Rules(keep=1), is_real=True).startswith("removed 0 runs")


def test_a_killed_one_is_finished_by_the_next(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.client.delete_registered_model_alias("shop", "champion")
    shop.mirror.drop(shop.gallery)
    # Of the first version nothing is on record, as an earlier release made it.
    shop.mirror.remove(shop.root / "pipelines" / hashlib.sha256(b"run 1").hexdigest()[:16])
    remove = Mirror.remove

    def stop_at_run(self: Mirror, folder: Path) -> None:
        if folder.parent.name == "pipelines":
            raise StopIteration
        remove(self, folder)

    with monkeypatch.context() as patch:  # nothing names the folder of the run any more
        patch.setattr(Mirror, "remove", stop_at_run)
        with pytest.raises(StopIteration):
            prune(shop.config, Rules(keep=2), is_real=True)
    for stop in (0, 2, 5):
        left = iter([remove] * stop)
        monkeypatch.setattr(Mirror, "remove", lambda self, folder, left=left: next(left)(self, folder))
        with pytest.raises(StopIteration):
            prune(shop.config, Rules(keep=2), is_real=True)
    monkeypatch.undo()

    def stop_at_record(mirror: Mirror, *paths: Path) -> None:
        raise StopIteration

    with monkeypatch.context() as patch:  # MLflow has forgotten the run, and its record is still there
        patch.setattr(Mirror, "drop", stop_at_record)
        with pytest.raises(StopIteration):
            prune(shop.config, Rules(keep=2), is_real=True)
    prune(shop.config, Rules(keep=6), is_real=True)
    assert shop.versions == {1, 5, 6}  # the removal of the first, made last, had not begun
    prune(shop.config, Rules(keep=2), is_real=True)
    assert shop.versions == {5, 6}
    assert shop.nights("train") == shop.nights("register") | {7, 8, 9} == shop.nights("run") == {5, 6, 7, 8, 9}


def test_another_process_is_at_work(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = [
        f"--set=work_dir={shop.root}",
        "--set=name=shop",
        f"--set=storage.address={shop.mirror.address or 'null'}",
    ]
    monkeypatch.setattr("sys.argv", ["prune.py", "--keep=1", "--yes", *overrides])
    first = shop.nights("run")
    with exclusive(shop.mirror, shop.root / "retrain" / "shop"), pytest.raises(BusyError, match="retrain/shop"):
        main()
    name = hashlib.sha256(b"run 1").hexdigest()[:16]
    with exclusive(shop.mirror, shop.root / "pipelines" / name):
        main()
        assert "another process is at it" in capsys.readouterr().out
        assert shop.nights("run") == first


def test_what_comes_into_use_while_others_are_removed_stays(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four runs that go: one's version is made champion, one's training is reused, and one is started again."""
    shop.client.delete_registered_model_alias("shop", "champion")
    shop.mirror.drop(shop.gallery)
    remove, began = Mirror.remove, ExitStack()
    trained = StageDir(shop.root, "train", hashlib.sha256(b"train 3").hexdigest(), shop.mirror).path
    started = shop.root / "pipelines" / hashlib.sha256(b"run 4").hexdigest()[:16]

    def begin(self: Mirror, folder: Path) -> None:
        monkeypatch.setattr(Mirror, "remove", remove)
        shop.client.set_registered_model_alias("shop", "champion", "2")
        record = RunOutputs(at=datetime.now(UTC), folders=[trained.relative_to(shop.root).as_posix()])
        write_outputs(shop.mirror, shop.root / "pipelines" / "new", record)
        began.enter_context(exclusive(shop.mirror, started))
        remove(self, folder)

    monkeypatch.setattr(Mirror, "remove", begin)
    with began:
        told = prune(shop.config, Rules(keep=2), is_real=True)
        assert lock_file(shop.root, started, "work").with_suffix(".json").exists()
    assert told.startswith("removed 1 runs, ")
    assert "3 runs stay that another process has begun to use meanwhile" in told
    assert shop.versions == {2, 3, 4, 5, 6}
    assert shop.nights("train") == {2, 3, 4, 5, 6, 7, 8, 9}


def test_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "outputs.json").write_text("{")
    with pytest.raises(StorageError, match=r"outputs\.json is not the record of a run"):
        read_outputs(Mirror(tmp_path), tmp_path / "outputs.json")
    outside = RunOutputs(at=datetime(2026, 1, 1, tzinfo=UTC), folders=["../photographs"])
    write_outputs(Mirror(tmp_path), tmp_path, outside)
    with pytest.raises(StorageError, match="photographs"):
        read_outputs(Mirror(tmp_path), tmp_path / "outputs.json")

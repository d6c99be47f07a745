"""The runs of a work folder or its storage, and what needs them: aliases, galleries, services, the next night."""

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.config import PipelineConfig
from pipelines.registry.in_use import folder_of_marks, versions_in_use
from pipelines.registry.models import CHAMPION, FINGERPRINT_TAG, aliases_of, registry_client
from pipelines.retention.choice import Disk, Run
from pipelines.retraining.journal import LAST, START
from pipelines.retraining.promotion import BEFORE_TAG
from pipelines.retrieval.gallery_storage import GALLERIES, STATE
from pipelines.runtime.outputs import OUTPUTS, read_outputs
from pipelines.runtime.stage import MANIFEST, StageError
from pipelines.schema.fields import default_mirror
from pipelines.tracking.client import named_outages
from pipelines.tracking.removal import LoggedRuns, local_folder
from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.elsewhere import ELSEWHERE
from preprocessing.storage.opening import open_storage
from vse_core.digests import unsealed

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

RUNS, RETRAIN, MLFLOW = "pipelines", "retrain", "mlflow:"


@dataclass(frozen=True)
class WorkFolder:
    """What is in the work folder of a configuration, or on its storage, and in MLflow; read once."""

    config: PipelineConfig

    @cached_property
    def files(self) -> dict[str, tuple[Hashable, int]]:
        """Each file by its name below the folder: what is equal of links to one file, and its bytes."""
        if self.config.mirror.address is not None:
            return {entry.name: (entry.name, entry.bytes) for entry in open_storage(self.config.mirror.address).list()}
        found: dict[str, tuple[Hashable, int]] = {}
        for path in self.config.work_dir.rglob("*"):
            with suppress(FileNotFoundError):  # another process works here
                if path.is_file() and not path.is_symlink():
                    status = path.stat()
                    found[path.relative_to(self.config.work_dir).as_posix()] = (status.st_ino, status.st_size)
        return found

    @cached_property
    def versions(self) -> "dict[str, list[ModelVersion]]":
        """The versions that this program has registered, of any model, by the folders of their registration."""
        found: dict[str, list[ModelVersion]] = {}
        with named_outages(self.config.tracking_uri, "find the registered models"):
            versions = registry_client(self.config.tracking_uri).search_model_versions(max_results=10_000)
        for version in (version for version in versions if FINGERPRINT_TAG in version.tags):
            found.setdefault(f"register/{version.tags[FINGERPRINT_TAG][:16]}", []).append(version)
        return found

    @cached_property
    def logged(self) -> LoggedRuns:
        """The runs in MLflow; one is a further folder, MLFLOW and its id, of the run that made it."""
        return LoggedRuns(self.config.tracking_uri, self.config.experiment.name)

    @cached_property
    def runs(self) -> list[Run]:
        """All runs, of any model: those on record, and versions of earlier releases, which recorded none."""
        recorded = [self._recorded(name) for name in self._records]
        known = {folder for run in recorded for folder in run.folders}
        earlier = [_earlier(folder, self.versions[folder][0]) for folder in self.versions.keys() - known]
        users = [[run for run in recorded if folder in run.folders] for folder in self._newest]
        newest = {max(each, key=lambda run: run.at).name for each in users if each}
        runs = [replace(run, needed=self._needed_by_the_next(run, newest)) for run in (*recorded, *earlier)]
        reasons = self._needed_versions(runs)
        return [
            replace(
                run,
                needed=run.needed or next((reasons[each] for each in self._own(run.folders) if each in reasons), ""),
                folders=run.folders | {f"{MLFLOW}{each}" for each in self.logged.of(run.folders)},
            )
            for run in runs
        ]

    @cached_property
    def disk(self) -> Disk:
        """The files by the folders of the runs."""
        disk, folders = Disk(), {folder: folder for run in self.runs for folder in run.folders}
        for run, address in self.logged.artifacts:
            here = local_folder(address)
            if here is not None and here.is_relative_to(self.config.work_dir):
                folders[here.relative_to(self.config.work_dir).as_posix()] = f"{MLFLOW}{run}"
        named: set[str] = set()
        for folder in (name.rpartition("/")[0] for name in self.files if name.endswith(f"/{ELSEWHERE}")):
            for entry in self.config.mirror.elsewhere(self.config.work_dir / folder).values():
                disk.add(folders.get(folder, ""), entry.name, entry.bytes)
                named.add(entry.name)
        for name, file in self.files.items():
            parts = name.split("/")
            inside = ("/".join(parts[:depth]) for depth in range(2, len(parts)))
            home = next((folders[folder] for folder in inside if folder in folders), "")
            if home or name not in named:  # else its own folder has gone, and it is those folders' that name it
                disk.add(home, *file)
        return disk

    def is_used_by_now(self, run: Run, folders: set[str]) -> bool:
        """Return whether something has begun to need a run's versions, or to use its folders, since this was read."""
        now = WorkFolder(self.config)
        versions, reasons = set(now._own(run.folders)), now._needed_versions(self.runs)
        if versions != set(self._own(run.folders)) or versions & reasons.keys():
            return True
        begun = [name for name, version in now._records.items() if self._records.get(name) != version]
        return any(folders & now._recorded(name).folders for name in begun)

    @cached_property
    def _records(self) -> dict[str, Hashable]:
        """What changes of the record of each run, by its name, if the run begins to use another folder."""
        mirror, place = self.config.mirror, self.config.work_dir / RUNS
        if mirror.address is not None:
            found = {f"{RUNS}/{name}": entry.version for name, entry in mirror.stored(place).items()}
            return {name: version for name, version in found.items() if Path(name).match(f"{RUNS}/*/{OUTPUTS}")}
        here: dict[str, Hashable] = {}
        for path in place.glob(f"*/{OUTPUTS}"):
            with suppress(FileNotFoundError):  # another process prunes
                here[path.relative_to(self.config.work_dir).as_posix()] = path.stat().st_mtime_ns
        return here

    def _own(self, folders: frozenset[str]) -> list[int]:
        """Return the versions of the configured model whose registrations are among folders."""
        found = (each for folder in folders for each in self.versions.get(folder, ()))
        return [int(each.version) for each in found if each.name == self.config.registered_model]

    def _recorded(self, name: str) -> Run:
        outputs = read_outputs(self.config.mirror, self.config.work_dir / name)
        if outputs is None:
            raise StageError(f"{name} has just been removed: is another process pruning? Try again")
        folders = frozenset(outputs.folders)
        of_schedule = any(folder.startswith(f"{RETRAIN}/") for folder in folders)
        version = max(self._own(folders), default=None)
        run = Run(name.rpartition("/")[0], outputs.model, version, outputs.at, folders, "", of_schedule)
        return replace(run, is_going=outputs.is_going)

    def _needed_by_the_next(self, run: Run, newest: set[str]) -> str:
        """Return the reason why the next start needs a run, "" if it does not."""
        identity, ended = self._last
        if f"{RETRAIN}/{self.config.registered_model}/{identity[:16]}" in run.folders:
            return "the last retraining, which the next one is compared with"
        if run.name in newest:
            return "its shards are the newest, which the next version of the data reuses"
        stages = [each for each in run.folders if each.partition("/")[0] not in (RUNS, RETRAIN)]
        begun = self._folders.intersection(stages)
        is_overtaken = run.is_repeated and run.at < ended
        if not run.is_going and not is_overtaken and any(f"{each}/{MANIFEST}" not in self.files for each in begun):
            return "unfinished: the same command resumes it"
        return ""

    @cached_property
    def _folders(self) -> set[str]:
        return {parent.as_posix() for name in self.files for parent in Path(name).parents}

    @cached_property
    def _last(self) -> tuple[str, datetime]:
        """The identity of the last finished retraining, and when it ended; "" and long ago without one."""
        record = self._read(f"{RETRAIN}/{self.config.registered_model}/{LAST}")
        if record is None:
            return "", datetime.min.replace(tzinfo=UTC)
        return record["identity"], datetime.fromisoformat(record["ended"])

    @cached_property
    def _newest(self) -> set[str]:
        """The folders with the newest shards of each split."""
        records = [name for name in self.files if Path(name).match("*/*/newest-*.json")]
        found = ((name.rpartition("/")[0], self._read(name) or {}) for name in records)
        return {f"{folder}/{record['fingerprint'][:16]}" for folder, record in found}

    def _needed_versions(self, runs: list[Run]) -> dict[int, str]:
        """Return why versions of the model stay, the best reason for each."""
        model, uri = self.config.registered_model, self.config.tracking_uri
        reasons: dict[int, str] = {}
        mirrors = (self.config.mirror, default_mirror())
        for root in {folder_of_marks(uri), *(mirror.root for mirror in mirrors)}:
            reasons |= dict.fromkeys(versions_in_use(model, root), "a service here has loaded it")
        for mirror in mirrors:
            galleries = mirror.root / GALLERIES
            there = {path for path in map(galleries.joinpath, mirror.stored(galleries)) if path.match(f"*/{STATE}")}
            for state in there.union(galleries.glob(f"*/{STATE}")):
                content = _content(mirror.read(state) or state.read_bytes(), state)
                name, _, version = str(content["model"]).rpartition("/")
                if name == model:
                    reasons[int(version)] = f"the gallery {state.parent.name} was indexed with it"
        of_model = f"{RETRAIN}/{model}/"
        for folder in (each for run in runs if run.needed for each in run.folders if each.startswith(of_model)):
            if (begun := self._read(f"{folder}/{START}")) and begun["version"] is not None:
                reasons[begun["version"]] = "an unfinished retraining started from it"
        with named_outages(uri, "find the aliases"):
            aliases = aliases_of(model, uri)
        for each in (each for found in self.versions.values() for each in found):
            if each.name == model and int(each.version) == aliases.get(CHAMPION) and BEFORE_TAG in each.tags:
                reasons[int(each.tags[BEFORE_TAG])] = "the champion before this one, for a rollback"
        return reasons | {version: f"it is the {alias}" for alias, version in sorted(aliases.items(), reverse=True)}

    def _read(self, name: str) -> dict[str, Any] | None:
        data = self.config.mirror.read(self.config.work_dir / name)
        return None if data is None else _content(data, self.config.work_dir / name)


def _content(data: bytes, path: Path) -> dict[str, Any]:
    with damage_as(StageError, f"{path} cannot be read", "restore or remove it"):
        return unsealed(parse_json(data), path)


def _earlier(folder: str, version: "ModelVersion") -> Run:
    """Return the run of a version without a record: its registration and its training are known."""
    training = version.tags.get("vse.train_fingerprint", "")[:16]
    name = f"{RUNS}/{Path(folder).name}"
    folders = {name, folder, *([f"train/{training}"] if training else [])}
    at = datetime.fromtimestamp(version.creation_timestamp / 1000, UTC)
    return Run(name, version.name, int(version.version), at, frozenset(folders))

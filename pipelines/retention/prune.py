"""The command prune: shows which versions of a model would go and why others stay, and removes what they have left."""

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from rich.table import Table

from pipelines.config import PipelineConfig, load_config
from pipelines.registry.models import registry_client
from pipelines.retention.choice import Disk, Rules, Run, choose, removable
from pipelines.retention.work_folder import MLFLOW, RETRAIN, WorkFolder
from pipelines.runtime.cli import console, make_parser, number_in, say
from pipelines.runtime.lock import exclusive
from pipelines.runtime.outputs import OUTPUTS, RunOutputs, write_outputs
from pipelines.runtime.progress import progress_bar
from pipelines.runtime.stage import MANIFEST
from pipelines.tracking.client import named_outages
from preprocessing.storage.base import BusyError
from preprocessing.storage.mirror import Mirror, remove_locks

Unit = TypeVar("Unit", int, timedelta)

_UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_PERIODS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def prune(config: PipelineConfig, rules: Rules, *, is_real: bool) -> str:
    """Print what goes and what stays, remove it if this `is_real`, and return the totals in a line.

    Whoever calls it holds the lock of the model's retraining. A killed one is finished by the next one. Raises
    StageError, StorageError or TrackingError if a record cannot be read, or the storage or MLflow do not answer.
    """
    found = WorkFolder(config)
    runs, disk = found.runs, found.disk
    going = choose(runs, config.registered_model, rules, disk)
    busy = list(_busy(config.mirror, going)) if is_real else []
    going = [run for run in going if run not in busy]
    own = [run for run in runs if run.model == config.registered_model]
    _print(own, going, busy, removable(going, runs), disk)
    gone = _remove(found, going) if is_real else dict.fromkeys(going, True)
    known = {folder for run in runs for folder in run.folders}
    unknown = [name for name in found.files if Path(name).name == MANIFEST and name.rpartition("/")[0] not in known]
    where, size = config.mirror.address or config.work_dir, _size(disk.freed(removable([*gone], runs)))
    told = [f"{'removed' if is_real else 'would remove'} {len(gone)} runs, {size} of {_size(disk.total)} in {where}"]
    if len(gone) < len(going):
        told.append(f"{len(going) - len(gone)} runs stay that another process has begun to use meanwhile")
    if unknown:
        told.append(f"{len(unknown)} outputs stay that no run on record has made, as those of earlier releases")
    if not all(gone.values()):
        told.append("their runs are marked as deleted in MLflow: `mlflow gc` on its server removes them for good")
    return "; ".join(told) + ("" if is_real else " (--yes removes it)")


def _busy(mirror: Mirror, going: Sequence[Run]) -> Iterator[Run]:
    """Yield the runs that another process is at now."""
    for run in going:
        try:
            with exclusive(mirror, mirror.root / run.name):
                pass
        except BusyError:
            yield run


def _remove(found: WorkFolder, going: Sequence[Run]) -> dict[Run, bool]:
    """Remove runs one by one; return those that went, each with whether MLflow has nothing left of it.

    One that a process has begun to use since the work folder was read stays.
    """
    mirror = found.config.mirror
    gone: dict[Run, bool] = {}
    with progress_bar("prune", len(going), "runs") as bar:
        for run in going:
            folders = removable([run], [each for each in found.runs if each not in gone])
            places = [mirror.root / name for name in sorted({run.name, *folders}) if not name.startswith(MLFLOW)]
            with suppress(BusyError), exclusive(mirror, *places):
                if not found.is_used_by_now(run, folders):
                    gone[run] = _remove_run(found, run, folders)
            for place in places if run in gone else ():
                remove_locks(mirror.root, place)
            bar.update()
    return gone


def _remove_run(found: WorkFolder, run: Run, folders: set[str]) -> bool:
    """Remove a run's folders, the record by which an interrupted removal is finished last; False if MLflow has some."""
    config, mirror = found.config, found.config.mirror
    outputs = RunOutputs(model=run.model, at=run.at, folders=sorted(run.folders), is_going=True)
    write_outputs(mirror, mirror.root / run.name, outputs)
    client = registry_client(config.tracking_uri)
    for folder in folders:  # first: they have just been looked at
        with named_outages(config.tracking_uri, f"delete the versions of {folder}"):
            for version in found.versions.get(folder, ()):
                client.delete_model_version(version.name, version.version)
    logged = {folder for folder in folders if folder.startswith(MLFLOW)}
    for folder in sorted(folders - logged - {run.name}):
        mirror.remove(mirror.root / folder)
    is_freed = found.logged.remove({each.removeprefix(MLFLOW) for each in logged})
    if run.name in folders:
        _empty(mirror, mirror.root / run.name)
    mirror.drop(mirror.root / run.name / OUTPUTS)
    if run.name in folders:
        mirror.remove(mirror.root / run.name)
    return is_freed


def _empty(mirror: Mirror, folder: Path) -> None:
    """Remove what a folder holds here and on the storage, but for the record of a run."""
    here = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    mirror.drop(*(folder / name for name in sorted({*here, *mirror.stored(folder)} - {OUTPUTS})))


def _print(own: Sequence[Run], going: Sequence[Run], busy: Sequence[Run], folders: set[str], disk: Disk) -> None:
    table = Table("run", "made", "size", "", "why")
    for run in sorted(own, key=lambda run: run.at):
        what = f"{run.model}/{run.version}" if run.version is not None else f"not registered ({run.name})"
        goes = run in going
        within = "within the limits" if run.version is not None or run.is_repeated else "started by hand: see its age"
        why = "no alias, gallery or service needs it" if goes else run.needed or within
        size = _size(disk.freed(run.folders & folders if goes else run.folders))
        why = "another process is at it" if run in busy else why
        table.add_row(what, f"{run.at:%Y-%m-%d %H:%M}", size, "goes" if goes else "stays", why)
    console().print(table)


def _size(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _amount(units: Mapping[str, Unit], example: str) -> Callable[[str], Unit]:
    """Return the `type=` of an option: a whole number of one of the units."""

    def read(text: str) -> Unit:
        """Return the amount that a text says."""
        match = re.fullmatch(rf"(\d+)({'|'.join(units)})", text)
        if match is None:
            raise argparse.ArgumentTypeError(f"write it as {example} (units: {', '.join(units)}); got {text[:40]!r}")
        return int(match[1]) * units[match[2]]

    return read


def main() -> None:
    """Read the command line, and prune the runs of the configured model."""
    parser = make_parser()
    number = number_in(int, 1)
    parser.add_argument(
        "--keep",
        type=number,
        metavar="N",
        help="keep the N newest versions (by default, if no limit is given, retrain.keep)",
    )
    parser.add_argument(
        "--older-than",
        type=_amount(_PERIODS, "30d"),
        metavar="30d",
        help="remove only what is older than hours, days or weeks",
    )
    fits = "remove the oldest until the work folder fits, or what the storage has"
    parser.add_argument("--to-size", type=_amount(_UNITS, "50GB"), metavar="50GB", help=fits)
    parser.add_argument("--yes", action="store_true", help="remove it, which cannot be undone (default: only tell)")
    options = parser.parse_args()
    config = load_config(options.config, options.set)
    before = None if options.older_than is None else datetime.now(UTC) - options.older_than
    has_other = before is not None or options.to_size is not None
    keep = options.keep if options.keep is not None or has_other else config.retrain.keep
    if keep is None and not has_other:
        parser.error("say what stays: --keep N, --older-than 30d or --to-size 50GB")
    rules = Rules(keep, before, options.to_size)
    if not options.yes or options.dry_run:
        say(prune(config.for_dry_run(), rules, is_real=False))
        return
    with exclusive(config.mirror, config.work_dir / RETRAIN / config.registered_model):
        say(prune(config, rules, is_real=True))

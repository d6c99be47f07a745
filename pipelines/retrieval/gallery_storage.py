"""Galleries of one's own images on the storage of the work directory, from where any machine has them.

The folder of a version is named by its files, which never change. `gallery.json`, which names the current version, is
written there last, and asked for again by whoever reads a gallery here.
"""

import fcntl
import shutil
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pipelines.runtime.cli import console, say
from pipelines.runtime.commands import command
from pipelines.runtime.progress import progress_bar
from pipelines.schema.fields import default_mirror, default_work_dir
from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.address import is_s3, require_inner_name
from preprocessing.storage.atomic import locked, write_bytes_atomic, write_json_atomic
from preprocessing.storage.base import StorageError
from preprocessing.storage.mirror import NO_MIRROR, Mirror, lock_file
from preprocessing.storage.opening import open_storage
from vse_core.digests import sealed, unsealed

GALLERIES, STATE, SKIPPED, THUMBNAILS = "galleries", "gallery.json", "skipped.csv", "thumbnails"


def mirror_of(folder: Path) -> Mirror:
    """Return the work directory that a gallery is in, with its storage; a copy of one elsewhere has none."""
    return default_mirror() if folder.parent == default_work_dir() / GALLERIES else NO_MIRROR


def refresh(folder: Path) -> None:
    """Bring a gallery of the work directory up to what the storage has of it, if there is a storage.

    Raises StorageError if it does not answer, lacks what it had, or has another gallery of this name than made here.
    """
    mirror, state = mirror_of(folder), folder / STATE
    if mirror.address is None or not (folder.is_dir() or mirror.has(state)):
        return
    with locked(lock_file(mirror.root, folder, "state"), fcntl.LOCK_EX):
        while (there := mirror.read(state)) != (here := state.read_bytes() if state.is_file() else None):
            own = {} if here is None else content_of(here, folder)
            if there is None:
                if own["storage"] != mirror.address:
                    return  # not there yet
                if not is_s3(mirror.address) and not Path(mirror.address, GALLERIES).is_dir():
                    raise StorageError(
                        f"{mirror.address}: the folder is not there, or has no galleries: is it mounted?"
                    )
                delete_own = command("index", "--name", folder.name, "--delete")
                raise StorageError(
                    f"{mirror.address} has no gallery {folder.name!r} any more: if another machine has deleted it, "
                    f"delete the copy here too ({delete_own}); its images can be indexed again then"
                )
            _take(mirror, folder, own, there)


def _take(mirror: Mirror, folder: Path, own: dict[str, Any], there: bytes) -> None:
    """Copy the version that a `gallery.json` names, in place of the own one, unless it is replaced there meanwhile."""
    name = require_inner_name(content_of(there, folder)["current"], f"{mirror.address}, {folder.name}", StorageError)
    if not (folder / name).is_dir():
        if own and own["storage"] != mirror.address:
            delete_own = command("index", "--name", folder.name, "--delete")
            raise StorageError(
                f"{folder} was indexed without this storage, and {mirror.address} has another gallery of its name: "
                f"delete the one here (VSE_STORAGE= {delete_own}), or unset VSE_STORAGE"
            )
        console(stderr=True).print(f"{folder.name}: copying {name} from {mirror.address}", soft_wrap=True)
    try:
        mirror.pull_folder(folder / name)
    except StorageError:
        if mirror.read(folder / STATE) == there:
            raise
        return
    write_bytes_atomic(folder / SKIPPED, mirror.read(folder / SKIPPED) or b"")
    write_bytes_atomic(folder / STATE, there)
    if own and own["current"] != name:
        shutil.rmtree(folder / own["current"], ignore_errors=True)


def content_of(data: bytes, folder: Path) -> dict[str, Any]:
    """Return a `gallery.json`: model (NAME/VERSION), images, origin, current version; compression and storage, if any.

    Raises StorageError or DigestError if it cannot be read.
    """
    remedy = f"remove it ({command('index', '--name', folder.name, '--delete')}) and index its images again"
    with damage_as(StorageError, f"{folder / STATE} cannot be read", remedy):
        state = unsealed(parse_json(data), folder / STATE, remedy)
        if missing := {"model", "images", "origin", "current"} - state.keys():
            raise ValueError(f"it has no {', '.join(sorted(missing))}")
        return {"storage": None, **state}


def write_state(folder: Path, state: dict[str, Any], mirror: Mirror = NO_MIRROR) -> None:
    """Write `gallery.json` in the format of this version, on the storage first."""
    aside = folder / f".{STATE}"
    write_json_atomic(aside, sealed(state))
    if mirror.address is not None:
        open_storage(mirror.address).upload(aside, f"{GALLERIES}/{folder.name}/{STATE}")
    aside.replace(folder / STATE)


def publish_state(folder: Path, state: dict[str, Any], thumbnails: Collection[Path]) -> None:
    """Make a finished version the current one, after the storage has its files; there, what it replaces is removed.

    Whoever calls this has locked the gallery, there too.
    """
    mirror, kept = mirror_of(folder), {folder / STATE, folder / SKIPPED, *thumbnails}
    if mirror.address is None:
        write_state(folder, state)
        return
    stored = {folder / name for name in mirror.stored(folder)}
    _each("copy", mirror.push, [path for path in thumbnails if path not in stored and path.is_file()])
    mirror.push_folder(folder / state["current"])
    mirror.push(folder / SKIPPED)
    with locked(lock_file(mirror.root, folder, "state"), fcntl.LOCK_EX):
        write_state(folder, state, mirror)
    _each("remove", mirror.drop, [path for path in stored - kept if path.parent != folder / state["current"]])
    say(f"{folder.name}: also in {mirror.address}, from where machines with that VSE_STORAGE have it")


def delete(mirror: Mirror, folder: Path) -> None:
    """Delete a gallery, here and on the storage; one that is killed leaves none that looks complete."""
    mirror.drop(folder / STATE)
    _each("remove", mirror.drop, [folder / name for name in mirror.stored(folder)])
    shutil.rmtree(folder, ignore_errors=True)


def _each(title: str, work: Callable[[Path], None], paths: Collection[Path]) -> None:
    with progress_bar(title, len(paths), "files", delay=1) as bar, ThreadPoolExecutor(8) as pool:
        for _ in pool.map(work, paths):
            bar.update()

"""The journal of retrainings, for the next one, for schedulers and for people, in `<work_dir>/retrain/<model>/`.

status.json   outcome of the last start, or that it is running
log.txt       a line for each start that has ended
last.json     the record of the last finished retraining
<identity>/   of each retraining: record.json, the hashes of its data, its initial model, and its audit of new pairs

All of it is kept on the storage as well, if there is one, and read from there: machines come and go.
"""

import os
import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

from pipelines.runtime.stage import StageError
from preprocessing.extraction.split_hashes import DataManifest
from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.atomic import write_bytes_atomic, write_json_atomic
from preprocessing.storage.mirror import Mirror
from vse_core.digests import sealed, unsealed

STATUS, LOG, LAST, RECORD = "status.json", "log.txt", "last.json", "record.json"
# The initial model of a retraining, and the counts of its audit.
START, AUDIT = "start.json", "audit.json"


class Journal:
    """Reads and writes these files."""

    def __init__(self, folder: Path, mirror: Mirror) -> None:
        self.folder, self._mirror = folder, mirror

    def share(self) -> None:
        """Copy what earlier starts have left on this machine to a storage that was named since, and has no status yet.

        The status is not copied: this start writes its own.
        """
        if not self._mirror.has(self.folder / STATUS):
            files = [path for path in self.folder.rglob("*") if path.is_file() and path.name != STATUS]
            self._mirror.push_missing(self.folder, [path.relative_to(self.folder).as_posix() for path in files])

    def last(self) -> dict[str, Any] | None:
        """Return the record of the last finished retraining; None if there is none."""
        return self._read(self.folder / LAST)

    def once(
        self,
        identity: str,
        name: str,
        make: Callable[[], dict[str, Any]],
        is_current: Callable[[dict[str, Any]], bool] = lambda _record: True,
    ) -> dict[str, Any]:
        """Return what a retraining begins with: START or AUDIT, which `make` gives at its first start.

        It does so again if that of an earlier start is not what this one asks for, as `is_current` tells.
        """
        record = self._read(self.of(identity) / name)
        if record is None or not is_current(record):
            record = make()
            self._record(self.of(identity) / name, record)
        return record

    def data(self, identity: str, split: str) -> DataManifest | None:
        """Return the hashes of a split in a retraining; None if there are none."""
        data = self._mirror.read(self.of(identity) / f"{split}.npz")
        if data is None:
            return None
        with damage_as(StageError, f"the hashes of {split} in {self.of(identity)} are damaged", "remove the folder"):
            return DataManifest.load(data)

    def keep_data(self, identity: str, split: str, manifest: DataManifest) -> None:
        """Keep the hashes of a split."""
        self._write(self.of(identity) / f"{split}.npz", manifest.save)

    def file(self, identity: str, name: str) -> Path | None:
        """Return a file of a retraining, copied to this machine if need be; None if there is none."""
        path = self.of(identity) / name
        self._mirror.pull_file(path)
        return path if path.is_file() else None

    def keep_files(self, identity: str, *names: str) -> None:
        """Keep files that were written into the folder of a retraining."""
        self._mirror.push(*(self.of(identity) / name for name in names))

    def finish(self, identity: str, record: Mapping[str, Any]) -> None:
        """Keep the record of a finished retraining, from now on the last one."""
        self._record(self.of(identity) / RECORD, record)
        self._record(self.folder / LAST, record)

    def status(self, outcome: str, **more: Any) -> None:
        """Write the status of this start: running, nothing new, promoted, refused, failed or interrupted."""
        process = {"host": socket.gethostname(), "pid": os.getpid(), "at": now()}
        self._record(self.folder / STATUS, {"outcome": outcome, **process, **more})

    def log(self, outcome: str, text: str) -> None:
        """Add a line for a start that has ended."""
        line = f"{now()}  {outcome:<11}  {' '.join(text.split())}\n"
        content = (self._mirror.read(self.folder / LOG) or b"") + line.encode()
        self._write(self.folder / LOG, lambda path: write_bytes_atomic(path, content))

    def idle_starts(self) -> int:
        """Return the number of starts in a row, up to the last one, that found nothing new."""
        lines = (self._mirror.read(self.folder / LOG) or b"").decode().splitlines()
        return len(list(takewhile(lambda line: " nothing new " in line[:40], reversed(lines))))

    def of(self, identity: str) -> Path:
        """Return the folder of a retraining."""
        return self.folder / identity[:16]

    def _read(self, path: Path) -> dict[str, Any] | None:
        data = self._mirror.read(path)
        if data is None:
            return None
        remedy = "remove it, here and on the storage"
        with damage_as(StageError, f"{path} is not a record of a retraining", remedy):
            return unsealed(parse_json(data), path, remedy)

    def _record(self, path: Path, content: Mapping[str, Any]) -> None:
        self._write(path, lambda path: write_json_atomic(path, sealed(content)))

    def _write(self, path: Path, write: Callable[[Path], None]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path)
        self._mirror.push(path)


def now() -> str:
    """Return the time, in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

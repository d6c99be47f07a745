"""Checkpoints on their way to the storage, while training continues."""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

from pipelines.runtime.stage import MANIFEST
from pipelines.training.loss_log import LOSSES
from preprocessing.storage.mirror import CONTENTS, Mirror

log = logging.getLogger(__name__)

State = tuple[Path, ...]


class CheckpointUploads:
    """Brings what the storage has of a run to what the run has now, in a thread.

    One state is on its way and one waits; a newer one takes the place of the one that waits. While the storage is away
    training continues and what lies there gets older: the next state is tried again, and the last one must arrive.
    """

    def __init__(self, directory: Path, mirror: Mirror) -> None:
        self._directory = directory
        self._mirror = mirror
        self._changed = threading.Condition()
        self._waiting: State | None = None
        self._moving: State = ()
        self._failed: State | None = None
        self._written: set[Path] = set()
        self._thread: threading.Thread | None = None

    def request(self, folders: Sequence[Path], written: Sequence[Path]) -> None:
        """Have these folders of the run on the storage soon, in this order, and its other checkpoints gone from there.

        Returns at once. Files next to the folders go first: what a checkpoint refers to is there before it. `written`
        names the folders that are new since the last request.
        """
        if self._mirror.address is None:
            return
        with self._changed:
            self._waiting, self._failed = tuple(folders), None
            self._written |= set(written)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="checkpoint-uploads", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def in_use(self) -> set[Path]:
        """Return the folders that are being copied, or will be, and must stay until they are."""
        with self._changed:
            return {*self._moving, *(self._waiting or ())}

    def wait(self) -> None:
        """Return when the last state requested is on the storage; raises StorageError if it cannot be."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting is None and not self._moving)
            failed, self._failed = self._failed, None
        if failed is not None:
            self._bring(failed)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting is not None)
                self._moving, self._waiting = self._waiting or (), None
            failed = None
            try:
                self._bring(self._moving)
            except Exception as error:  # noqa: BLE001 - whatever it is, `wait` meets it again and raises it
                failed = self._moving
                log.warning("a checkpoint is on this machine alone, and training continues: %s", error)
            with self._changed:
                self._moving = ()
                if self._waiting is None:
                    self._failed = failed
                self._changed.notify_all()

    def _bring(self, folders: State) -> None:
        if (self._directory / LOSSES).exists():
            self._mirror.push_snapshot(self._directory / LOSSES)
        stored = self._mirror.stored(self._directory)
        if MANIFEST in stored:
            # This machine was cut off for so long that another one took the run over, and the manifest names its model.
            log.warning("another process has finished this training: nothing more of this one is uploaded")
            return
        for folder in folders:
            with self._changed:
                is_new = folder in self._written
                self._written.discard(folder)  # before it is copied: what is written meanwhile is new again
            if is_new or f"{self._name(folder)}/{CONTENTS}" not in stored:
                try:
                    self._mirror.push_folder(folder)
                except BaseException:
                    with self._changed:
                        self._written.add(folder)
                    raise
        kept = {self._name(folder) for folder in folders}
        for name in sorted({name.rpartition("/")[0] for name in stored} - kept):
            # Not the shares of a later checkpoint, in a folder with a dot: they are on their way to the first process.
            if name.startswith(("checkpoints/step-", "best-")) or "checkpoints/" < name.replace("/.", "/") < max(kept):
                self._mirror.drop_folder(self._directory / name)

    def _name(self, folder: Path) -> str:
        return folder.relative_to(self._directory).as_posix()

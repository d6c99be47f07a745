"""The folder of a training run, which outlives the processes and machines that train."""

import contextlib
import fcntl
import itertools
import shutil
from dataclasses import dataclass
from pathlib import Path

from pipelines.training.checkpoints import defect_of, newest_checkpoint
from pipelines.training.initial_weights import INITIAL, keep_initial
from pipelines.training.loss_log import LOSSES
from preprocessing.storage.atomic import locked
from preprocessing.storage.mirror import CONTENTS, Mirror, lock_file
from vse_core.digests import DIGESTS, DigestError, recorded


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run on this machine, and what `mirror` has of it on the storage, if there is one.

    The driver publishes what its machine has, then every machine recovers: so all start from the same checkpoint.
    """

    path: Path
    mirror: Mirror

    def publish(self, initial: Path | None = None) -> None:
        """Copy to the storage what it lacks: the model to start from, if any, and the checkpoints of an earlier start.

        Raises DigestError if the model to start from was changed.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        if initial is not None:
            keep_initial(initial, self.path, self.mirror)
        valid = (path for path in reversed(self._checkpoints()) if defect_of(path) is None)
        for path in [*sorted(self.path.glob("best-*")), *itertools.islice(valid, 1)]:
            if not self.mirror.has(path / CONTENTS):
                self.mirror.push_folder(path)

    def recover(self) -> Path | None:
        """Bring the folder to the state that all machines start from; return its newest checkpoint, None before one.

        With a storage that is the state there. A checkpoint that only this machine has goes: processes that start from
        different ones would never agree. Raises StageError if all checkpoints are damaged.
        """
        if self.mirror.address is not None:
            self.path.mkdir(parents=True, exist_ok=True)
            ending = f"/{CONTENTS}"
            stored = [name.removesuffix(ending) for name in self.mirror.stored(self.path) if name.endswith(ending)]
            for path in self._checkpoints():
                if path.relative_to(self.path).as_posix() not in stored:
                    shutil.rmtree(path)
            for name in stored:
                if name == INITIAL or name.startswith("best-"):
                    self.mirror.pull_folder(self.path / name)
            self._pull_newest(sorted(name for name in stored if name.startswith("checkpoints/")))
            self.mirror.pull(self.path, {DIGESTS, LOSSES}.__contains__)
            with contextlib.suppress(DigestError):  # nothing is prepared yet
                self.mirror.pull(self.path, recorded(self.path).__contains__)
        return newest_checkpoint(self.path)

    def saved_step(self) -> int:
        """Return the step of the newest checkpoint, here or on the storage."""
        stored = (Path(name).parent for name in self.mirror.stored(self.path) if name.startswith("checkpoints/step-"))
        paths = itertools.chain(stored, self._checkpoints())
        return max((int(path.name.removeprefix("step-")) for path in paths), default=0)

    def _checkpoints(self) -> list[Path]:
        return sorted(self.path.glob("checkpoints/step-*"))

    def _pull_newest(self, names: list[str]) -> None:
        """Copy the newest of the checkpoints on the storage that is valid there; a damaged copy is replaced."""
        with locked(lock_file(self.mirror.root, self.path, "adopting"), fcntl.LOCK_EX):
            for path in (self.path / name for name in reversed(names)):
                self.mirror.pull_folder(path)
                if defect_of(path) is not None:
                    shutil.rmtree(path)
                    self.mirror.pull_folder(path)
                if defect_of(path) is None:
                    return

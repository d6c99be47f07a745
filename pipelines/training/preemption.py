"""A training process that is told to end by SIGTERM: it asks the first one for a checkpoint, waits for it, and ends.

The processes talk through the store that they met at, not in a collective: the others continue with their steps.
"""

import os
import signal
import threading
import time

import torch.distributed as dist

# Kubernetes kills 30 seconds after SIGTERM, Ray's own `ray stop` after 16.
GRACE_SECONDS = 14.0
_LOOK_EVERY_SECONDS = 0.5
_WANTED, _SAVED = "vse/checkpoint-wanted", "vse/checkpoint-saved"
_EXIT_STATUS = 128 + signal.SIGTERM


def watch() -> None:
    """End this process with a checkpoint on SIGTERM from now on; to be called in its main thread."""
    # Waiting is for another thread: the one that Python runs this in answers Ray's questions.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=_end, name="preempted").start())


def _end() -> None:
    """Ask for a checkpoint, wait for it within the grace period, and end in any case."""
    try:
        if dist.is_initialized():
            store = _store()
            store.set(_WANTED, "1")
            deadline = time.monotonic() + GRACE_SECONDS
            while not store.check([_SAVED]) and time.monotonic() < deadline:
                time.sleep(_LOOK_EVERY_SECONDS / 5)
    finally:
        os._exit(_EXIT_STATUS)  # threads of Ray and torch would keep it alive


def _store() -> dist.Store:
    world = dist.group.WORLD
    assert world is not None
    return world.get_group_store()


class CheckpointRequests:
    """The first process's view of the checkpoints that processes ask for before they end."""

    def __init__(self) -> None:
        self._looked_at = time.monotonic()
        self._is_answered = False

    def is_wanted(self) -> bool:
        """Return whether a checkpoint is wanted that has not been made; looks twice a second at most."""
        now = time.monotonic()
        if self._is_answered or not dist.is_initialized() or now - self._looked_at < _LOOK_EVERY_SECONDS:
            return False
        self._looked_at = now
        return bool(_store().check([_WANTED]))

    def answer(self) -> None:
        """Say that the checkpoint is on the storage."""
        self._is_answered = True
        _store().set(_SAVED, "1")

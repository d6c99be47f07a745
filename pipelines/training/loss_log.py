"""The file of a run's losses, which its progress bar follows."""

import json
from pathlib import Path

from preprocessing.storage.atomic import write_bytes_atomic

LOSSES = "losses.jsonl"


def append_loss(directory: Path, step: int, loss: float) -> None:
    """Append the loss of a step, counted from 1."""
    with (directory / LOSSES).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, "loss": loss}) + "\n")


def read_losses(directory: Path) -> list[dict[str, float]]:
    """Return the logged losses of a run: ``step`` (from 1) and ``loss``, in order."""
    path = directory / LOSSES
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def last_loss(directory: Path) -> dict[str, float] | None:
    """Return the newest complete entry, read from the end of the file; None before the first."""
    path = directory / LOSSES
    if not path.exists():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 1000))
        whole = [
            line for line in file.read().splitlines(keepends=True) if line.startswith(b"{") and line.endswith(b"}\n")
        ]
    return json.loads(whole[-1]) if whole else None


def forget_losses(directory: Path, after: int) -> None:
    """Drop the losses of steps beyond a checkpoint, which a resumed run writes again, and a line that a kill cut."""
    path = directory / LOSSES
    if path.exists():
        whole = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("}\n")]
        write_bytes_atomic(path, "".join(line for line in whole if json.loads(line)["step"] <= after).encode())

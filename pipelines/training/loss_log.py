"""The file of a run's losses, which its progress bar follows."""

import json
from pathlib import Path

from preprocessing.storage.atomic import write_bytes_atomic

LOSSES = "losses.jsonl"


def append_loss(directory: Path, step: int, loss: float) -> None:
    """Append the loss of a step, counted from 1."""
    with (directory / LOSSES).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, "loss": loss}) + "\n")


def last_loss(directory: Path) -> dict[str, float] | None:
    """Return the newest complete entry, with ``step`` (from 1) and ``loss``; None before the first."""
    lines = _complete_lines(directory)
    return json.loads(lines[-1]) if lines else None


def forget_losses(directory: Path, after: int) -> None:
    """Drop the losses of steps beyond a checkpoint, which a resumed run writes again, and a line that a kill cut."""
    kept = [line for line in _complete_lines(directory) if json.loads(line)["step"] <= after]
    if (directory / LOSSES).exists():
        write_bytes_atomic(directory / LOSSES, "".join(kept).encode())


def _complete_lines(directory: Path) -> list[str]:
    path = directory / LOSSES
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [line for line in lines if line.endswith("}\n")]

"""Progress bars for a terminal and for the log of a job."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

from pipelines.runtime.logs import is_json

BatchT = TypeVar("BatchT", bound=tuple[Any, ...])


class _Log:
    """A log, or a worker's stderr, which reaches the driver by lines: a line for each state of a bar."""

    def write(self, text: str) -> None:
        """Write what a bar shows now as a line of its own."""
        if line := text.strip():
            sys.stderr.write(f"{line}\n")

    def flush(self) -> None:
        """Flush stderr, which tqdm asks for after each state."""
        sys.stderr.flush()


def progress_bar(title: str, total: int | None, unit: str, initial: int = 0, delay: float = 0.0) -> tqdm[None]:
    """Return a progress bar for a ``with`` statement; ``update`` advances it from `initial`.

    The unit is in the plural: "images". Without a total it only counts. It appears after `delay` seconds. A log that is
    not a terminal gets a line every ten seconds.
    """
    place = {"mininterval": 0.5} if sys.stderr.isatty() else {"mininterval": 10.0, "file": _Log()}
    options: dict[str, Any] = {"initial": initial, "smoothing": 0, "delay": delay, "disable": is_json(), **place}
    return tqdm(total=total, desc=title, unit=f" {unit}", **options)


def counted(batches: Iterable[BatchT], title: str, total: int, unit: str) -> Iterator[BatchT]:
    """Yield batches, tuples whose first part has a row for each unit, while a bar counts the rows."""
    with progress_bar(title, total, unit) as bar:
        for batch in batches:
            yield batch
            bar.update(len(batch[0]))

"""Captions that training leaves out: a CSV file that names them, and the numbers of those that stay, for the workers.

A row names a caption by the columns `image_id` and `caption_id`. A column `caption`, if there is one, says what it was:
ids may be numbers in a table, which change with its rows. `pipelines/audit.py` writes such files.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipelines.runtime.stage import StageError
from preprocessing.shards.reader import ShardReader
from preprocessing.storage.atomic import write_bytes_atomic

KEPT = "kept.npy"
# Characters: a caption may have any number.
_LONGEST_VALUE = (1 << 31) - 1
_IDS, _TEXT = ("image_id", "caption_id"), "caption"

Pair = tuple[str, str]
"""The ids of an image and of a caption."""


def named_pairs(path: Path, reader: ShardReader | None = None) -> set[Pair]:
    """Read the pairs that a file names; StageError if it is not such a file, or a caption of `reader` is another now.

    Values are separated by commas, semicolons or tabs.
    """
    try:
        # Ids may be names of files, whose bytes need not be UTF-8.
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            separator = max(",;\t", key=file.readline().count)
            file.seek(0)
            csv.field_size_limit(_LONGEST_VALUE)
            rows = csv.DictReader(file, delimiter=separator, strict=True)
            if missing := set(_IDS).difference(rows.fieldnames or ()):
                raise ValueError(f"its first line lacks {' and '.join(sorted(missing))}")
            texts = {(row[_IDS[0]], row[_IDS[1]]): row.get(_TEXT) for row in rows}
        if any(None in pair for pair in texts):
            raise ValueError("a row is too short")
    except FileNotFoundError as error:
        raise StageError(f"train: training.leave_out: the file {path} does not exist") from error
    except (OSError, ValueError, csv.Error) as error:
        raise StageError(
            f"train: training.leave_out: {path} is not a CSV file in UTF-8 with the columns image_id and caption_id "
            f"({error}); correct it, or leave it out"
        ) from error
    for pair, text in zip(pairs_of(reader), reader.texts(), strict=True) if reader is not None else ():
        if (texts.get(pair) or text) != text:
            raise StageError(
                f"train: training.leave_out: {path} names the caption {pair[1]} of {pair[0]}, {texts[pair]!r}, which "
                f"is {text!r} now: its ids are those of other data; audit these, or leave the file out"
            )
    return set(texts)


def write_pairs(path: Path, rows: Iterable[Sequence[str]], more: Sequence[str] = ()) -> None:
    """Write such a file: a row has the two ids, then the values of the other columns."""
    text = io.StringIO()
    plain, quoted = (
        csv.writer(text, lineterminator="\n", quoting=quoting) for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
    )
    plain.writerow((*_IDS, *more))
    for row in rows:
        # The writer lets a carriage return stand alone, which ends a row to readers.
        (quoted if any("\r" in value for value in row) else plain).writerow(row)
    write_bytes_atomic(path, text.getvalue().encode(errors="surrogateescape"))


def number_dropped(share: float | None, captions: int) -> int:
    """Return the number of captions that `training.drop_worst` leaves out; 0 if it is not given."""
    return int((share or 0) * captions)


def pairs_of(reader: ShardReader) -> Iterator[Pair]:
    """Yield the pairs of a split, in the order of its captions."""
    for record in reader.metas():
        yield from ((record["image_id"], caption["caption_id"]) for caption in record["captions"])


def captions_of(reader: ShardReader) -> Iterator[tuple[str, str, str]]:
    """Yield the pairs of a split with the text of the caption, in the same order."""
    yield from ((*pair, text) for pair, text in zip(pairs_of(reader), reader.texts(), strict=True))


def left_out_pairs(path: Path | None, reader: ShardReader) -> set[Pair]:
    """Read the pairs of a split that `training.leave_out` names; none if it is not given.

    StageError if it names none of them, or another caption by the ids of one: it belongs to other data.
    """
    if path is None:
        return set()
    named = named_pairs(path, reader)
    left_out = named.intersection(pairs_of(reader))
    if named and not left_out:
        raise StageError(
            f"train: training.leave_out: {path} names {len(named):,} captions, none of which is in the training "
            "split: name the file of this data set, or leave it out"
        )
    return left_out


def keep_captions(path: Path, reader: ShardReader, directory: Path) -> int:
    """Write the numbers of the captions that a file does not name into a run's directory; returns how many stay.

    Raises as `left_out_pairs`.
    """
    left_out = left_out_pairs(path, reader)
    kept_C = np.array([number for number, pair in enumerate(pairs_of(reader)) if pair not in left_out], np.int64)
    np.save(directory / KEPT, kept_C, allow_pickle=False)
    return len(kept_C)


def kept_captions(directory: Path) -> npt.NDArray[np.int64] | None:
    """Return the numbers in a run's directory, in ascending order; None if no caption is left out."""
    path = directory / KEPT
    return np.load(path, allow_pickle=False) if path.exists() else None

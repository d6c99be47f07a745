"""Data set files as strangers write them: odd captions and names, broken files, images of any shape and kind.

Every reader is given the same photographs and captions; what it yields has to be exactly these, or refused.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from preprocessing.datasets import build_dataset
from preprocessing.features.precomputed import PrecomputedExtractor
from tests.integration.seams.attack import Case, attacked

Pairs = list[tuple[str, list[str]]]
PAIRS: Pairs = [("a.jpg", ["a dog", "two dogs"]), ("b.jpg", ["a cat", "no cat"])]
LONG = "x" * 5000

CAPTIONS = [
    "", " ", "  a dog  ", "a 🐕 runs", "كلب يجري", "e\u0301te\u0301", "a\u2028dog", "a\x85dog",
    "\ufeffa dog", "a\u200bdog",
    "a\tdog", 'a "dog"', '"', "a, dog", "a\x00dog", "a\x0bdog", "a\x0cdog", "a\x1cdog", "a\x1b[31m dog",
    "NaN", "null",
    "1e5", "True", "0x10", "=1+1", "<b>dog</b>", LONG, "\U0010ffff", "a\rdog", "a\ndog", "a#1\tb", "\\N", "a\\",
]  # fmt: skip
NAMES = [
    "ä.jpg", "a b.jpg", "a#1.jpg", "a?b.jpg", "a%20b.jpg", "-a.jpg", 'a"b.jpg', "a,b.jpg", "x/y.jpg",
    "A.jpg", "🐕.jpg",
    "e\u0301.jpg", "n" * 250 + ".jpg", "a.jpg.jpg", "a", " a.jpg", "a\tb.jpg", "a\nb.jpg", "\udcff.jpg",
]  # fmt: skip
HOSTILE_NAMES = ["../a.jpg", "/etc/passwd", "a\x00.jpg", "x/../../a.jpg", "..", "", "n" * 300 + ".jpg"]


def _rows(pairs: Pairs) -> list[tuple[str, str]]:
    return [(image, text) for image, texts in pairs for text in texts]


def _csv(pairs: Pairs, separator: str = ",") -> bytes:
    stream = io.StringIO()
    csv.writer(stream, delimiter=separator, lineterminator="\n").writerows([("image", "caption"), *_rows(pairs)])
    return stream.getvalue().encode(errors="surrogateescape")


def _parquet(pairs: Pairs) -> bytes:
    images, texts = zip(*_rows(pairs), strict=True)
    return _table({"image": list(images), "caption": list(texts)})


def _table(columns: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    parquet.write_table(pa.table(columns), stream)
    return stream.getvalue()


def _flickr(pairs: Pairs) -> bytes:
    lines = [f"{image}#{order}\t{text}\n" for image, texts in pairs for order, text in enumerate(texts)]
    return "".join(lines).encode(errors="surrogateescape")


def _coco(pairs: Pairs) -> bytes:
    images = [{"id": number, "file_name": image} for number, (image, _) in enumerate(pairs)]
    texts = [(number, text) for number, (_, texts) in enumerate(pairs) for text in texts]
    captions = [{"id": order, "image_id": number, "caption": text} for order, (number, text) in enumerate(texts)]
    return json.dumps({"images": images, "annotations": captions}).encode()


def _karpathy(pairs: Pairs) -> bytes:
    images, order = [], 0
    for number, (image, texts) in enumerate(pairs):
        sentences = [{"sentid": order + place, "raw": text} for place, text in enumerate(texts)]
        order += len(texts)
        images.append({"imgid": number, "split": "train", "filename": image, "sentences": sentences})
    return json.dumps({"images": images}).encode()


FORMATS: dict[str, Callable[[Pairs], bytes]] = {
    "x.csv": _csv,
    "x.tsv": lambda pairs: _csv(pairs, "\t"),
    "x.csv.gz": lambda pairs: gzip.compress(_csv(pairs), mtime=0),
    "x.parquet": _parquet,
    "tokens.txt": _flickr,
    "captions.json": _coco,
    "dataset.json": _karpathy,
}


def _records(folder: Path, name: str) -> Any:
    """Read the one split of a data set by the name of its file."""
    path, images = str(folder / name), str(folder / "images")
    if name == "tokens.txt":
        splits = {"train": str(folder / "train.txt")}
        return build_dataset("flickr", images=images, tokens=path, splits=splits).records("train")
    if name == "captions.json":
        return build_dataset("coco", images={"train": images}, annotations={"train": path}).records("train")
    if name == "dataset.json":
        return build_dataset("karpathy", images=images, annotations=path).records("train")
    return build_dataset("table", images=images, tables={"train": path}).records("train")


def _read(folder: Path, name: str) -> None:
    found = [(r.image_uri, [caption.text for caption in r.captions]) for r in _records(folder, name)]
    print(json.dumps(found))


class _Cases:
    """The cases, each with a folder of its own."""

    def __init__(self, root: Path) -> None:
        self._root, self._number = root, 0

    def read(self, case: str, name: str, data: bytes, accept: Callable[[Pairs], bool], pairs: Pairs = PAIRS) -> Case:
        """Return the case of one file of captions; `accept` is given the images, by their names, and their captions."""
        self._number += 1
        folder = self._root / str(self._number)
        (folder / "images").mkdir(parents=True)
        (folder / name).write_bytes(data)
        listed = "".join(f"{image}\n" for image, _ in pairs)
        (folder / "train.txt").write_bytes(listed.encode(errors="surrogateescape"))
        start = f"{folder}/images/"

        def correct(printed: str) -> bool:
            found = json.loads(printed)
            if not all(uri.startswith(start) for uri, _ in found):
                return False
            return accept([(uri.removeprefix(start), texts) for uri, texts in found])

        return Case(f"{name}: {case}", lambda: _read(folder, name), correct)


def _exactly(pairs: Pairs) -> Callable[[Pairs], bool]:
    return lambda found: found == pairs


def _nearly(found: Pairs) -> bool:
    """Another letter in one name or caption is what no reader can see; nothing is lost or moved."""
    wanted, got = _rows(PAIRS), _rows(found)
    return (
        len(got) == len(wanted)
        and sum(a != b for pair in zip(got, wanted, strict=True) for a, b in zip(*pair, strict=True)) <= 2
    )


def _beginning(found: Pairs) -> bool:
    """A text that ends after a line is whole to any reader; what it holds is right, but for a letter."""
    wanted, got = _rows(PAIRS), _rows(found)
    return all(any(a == image and _begins(text, b) for image, text in wanted) for a, b in got)


def _begins(whole: str, found: str) -> bool:
    return sum(a != b for a, b in zip(whole, found, strict=False)) <= 1


def captions(cases: _Cases) -> Iterator[Case]:
    """Yield odd captions in every format; one that a line cannot hold is refused by a format of lines."""
    for name, written in FORMATS.items():
        for text in CAPTIONS:
            if name == "tokens.txt" and text.strip() != text.split("\n")[0].strip():
                continue  # another file
            pairs = [("a.jpg", [text, "two dogs"]), PAIRS[1]]
            accept = _exactly(pairs)
            if name == "tokens.txt":  # white space around a line is none of a caption

                def accept(found, pairs=pairs):
                    return [(image, [each.strip() for each in texts]) for image, texts in found] == [
                        (image, [each.strip() for each in texts]) for image, texts in pairs
                    ]

            yield cases.read(f"caption {text[:20]!r}", name, written(pairs), accept)


def names(cases: _Cases) -> Iterator[Case]:
    """Yield odd names in every format, and those that lead elsewhere."""
    for name, written in FORMATS.items():
        for image in (*NAMES, *HOSTILE_NAMES):
            if name in ("x.parquet", "captions.json", "dataset.json") and "\udcff" in image:
                continue  # has no text that is not UTF-8
            if name == "tokens.txt" and (not image or set("\t\n") & set(image)):
                continue  # another file
            pairs = [(image, ["a dog", "two dogs"]), PAIRS[1]]
            accept = (lambda _: False) if image in HOSTILE_NAMES[:6] else _exactly(pairs)
            if (name == "tokens.txt" and image == image.strip()) or name != "tokens.txt":  # it is stripped there
                yield cases.read(f"name {image[:20]!r}", name, written(pairs), accept, pairs)


def encodings(cases: _Cases) -> Iterator[Case]:
    """Yield files of text in another encoding, with other ends of lines, cut, repeated, or with a changed bit."""
    draw = random.Random(42)
    for name, written in FORMATS.items():
        data = written(PAIRS)
        is_text = name.endswith((".csv", ".tsv", ".txt"))
        yield cases.read("empty", name, b"", lambda _: False)
        yield cases.read("zeros", name, bytes(1000), lambda _: False)
        # A parquet is read from its end.
        twice = _exactly(PAIRS) if name == "x.parquet" else lambda _: False
        yield cases.read("itself twice", name, data * 2, twice)
        yield cases.read("bytes before it", name, b"\xff\xd8\xff\xe0" + data, lambda _: False)
        yield cases.read("UTF-8 with a mark", name, b"\xef\xbb\xbf" + data, _exactly(PAIRS))
        yield cases.read("UTF-16", name, data.decode("latin-1").encode("utf-16"), lambda _: False)
        yield cases.read("Windows' ends of lines", name, data.replace(b"\n", b"\r\n"), _exactly(PAIRS))
        if b"cat" in data:
            yield cases.read("a byte that is not UTF-8", name, data.replace(b"cat", b"c\xe4t"), lambda _: False)
        for _ in range(6):
            at = draw.randrange(1, len(data))
            yield cases.read(f"cut at {at}", name, data[:at], _beginning if is_text else _exactly(PAIRS))
        for _ in range(8):
            at, bit = draw.randrange(len(data)), draw.randrange(8)
            flipped = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            # A caption of another name is one of an image that no list names.
            accept = _beginning if name == "tokens.txt" else _nearly
            yield cases.read(f"bit {bit} of byte {at}", name, flipped, accept)


def tables(cases: _Cases) -> Iterator[Case]:
    """Yield tables with the wrong columns, rows and types."""
    refused: dict[str, bytes] = {
        "a header alone": b"image,caption\n",
        "no header": b"a.jpg,a dog\nb.jpg,a cat\n",
        "a column twice": b"image,caption,caption\na.jpg,a dog,a cat\n",
        "the image twice": b"image,image,caption\na.jpg,b.jpg,a cat\n",
        "columns in other case": b"Image,Caption\na.jpg,a dog\n",
        "a short row": b"image,caption\na.jpg,a dog\nb.jpg\n",
        "a long row": b"image,caption\na.jpg,a dog,brown\n",
        "an open quote": b'image,caption\na.jpg,"a dog\nb.jpg,a cat\n',
        "an image that comes again": b"image,caption\na.jpg,a\nb.jpg,b\na.jpg,c\n",
        "semicolons": b"image;caption\na.jpg;a dog\n",
    }
    for case, data in refused.items():
        yield cases.read(case, "x.csv", data, lambda _: False)
        yield cases.read(case, "x.csv.gz", gzip.compress(data), lambda _: False)
    packed = gzip.compress(_csv(PAIRS), mtime=0)
    yield cases.read(
        "two members",
        "x.csv.gz",
        gzip.compress(_csv(PAIRS[:1])) + gzip.compress(b"b.jpg,a cat\nb.jpg,no cat\n"),
        _exactly(PAIRS),
    )
    yield cases.read("rubbish behind", "x.csv.gz", packed + b"rubbish", lambda _: False)
    yield cases.read("is a parquet", "x.csv.gz", gzip.compress(_parquet(PAIRS)), lambda _: False)
    yield cases.read("is not packed", "x.csv.gz", _csv(PAIRS), lambda _: False)
    yield cases.read("is a CSV", "x.parquet", _csv(PAIRS), lambda _: False)
    yield cases.read("100 MB of zeros", "x.csv.gz", gzip.compress(bytes(100_000_000)), lambda _: False)
    yield cases.read(
        "100 MB in a quote", "x.csv.gz", gzip.compress(b'image,caption\na,"' + b"x" * 100_000_000), lambda _: False
    )
    both = ["a.jpg", "b.jpg"]
    columns: dict[str, dict[str, Any]] = {
        "numbers for captions": {"image": both, "caption": [1, 2]},
        "numbers for images": {"image": [1, 2], "caption": both},
        "bytes for captions": {"image": both, "caption": [b"\xff", b"x"]},
        "an image without a value": {"image": ["a.jpg", None], "caption": both},
        "lists of lists": {"image": both, "caption": [[["a"]], [["b"]]]},
        "structs": {"image": both, "caption": [{"a": "b"}, {"a": "c"}]},
        "dates": {"image": both, "caption": pa.array([1, 2], pa.date32())},
        "booleans": {"image": both, "caption": [True, False]},
        "no captions column": {"image": both, "text": both},
        "no rows": {"image": pa.array([], pa.string()), "caption": pa.array([], pa.string())},
    }
    for case, content in columns.items():
        yield cases.read(case, "x.parquet", _table(content), lambda _: False)
    # Skipped and counted where shards are made, as empty ones.
    missing = [("a.jpg", [""]), ("b.jpg", [""])]
    for column in (pa.nulls(2), pa.array([[None], [None]], pa.list_(pa.string())), pa.array([None, ""], pa.string())):
        yield cases.read("no captions", "x.parquet", _table({"image": both, "caption": column}), _exactly(missing))
    texts = [["a dog", "two dogs"], ["a cat", "no cat"]]
    kinds = {
        "large": pa.list_(pa.large_string()),
        "fixed": pa.list_(pa.string(), 2),
        "dictionary": pa.list_(pa.string()),
    }
    for case, kind in kinds.items():
        column = pa.array(both).dictionary_encode() if case == "dictionary" else pa.array(both, pa.large_string())
        yield cases.read(
            f"{case} lists", "x.parquet", _table({"image": column, "caption": pa.array(texts, kind)}), _exactly(PAIRS)
        )


def annotations(cases: _Cases) -> Iterator[Case]:
    """Yield JSON of COCO and of Karpathy in which one value is another."""
    values = [None, True, -1, 1.5, 2**70, "", "x", [], {}, [[]], "\ud800"]
    for name in ("captions.json", "dataset.json"):
        whole = json.loads(FORMATS[name](PAIRS))
        for path in _paths(whole):
            for value in random.Random(str(path)).sample(values, 4):
                content = json.loads(FORMATS[name](PAIRS))
                node = content
                for key in path[:-1]:
                    node = node[key]
                if node[path[-1]] == value or (
                    isinstance(value, str) and value == "x" and path[-1] in ("caption", "raw")
                ):
                    continue
                node[path[-1]] = value
                free = path[-1] in ("imgid", "id", "sentid")
                if path[-1] == "sentences" and value == []:  # an image may have none
                    continue
                text = path[-1] in ("caption", "raw", "file_name", "filename") and isinstance(value, str)
                accept = _nearly if text else _exactly(PAIRS) if free else lambda _: False
                yield cases.read(f"{'.'.join(map(str, path))} = {value!r}", name, json.dumps(content).encode(), accept)


def _paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of values, of lists the first item alone."""
    if path:
        yield path
    items = node.items() if isinstance(node, dict) else enumerate(node[:1]) if isinstance(node, list) else ()
    for key, child in items:
        yield from _paths(child, (*path, key))


def precomputed(cases: _Cases) -> Iterator[Case]:
    """Yield feature arrays and their text files that do not fit each other."""
    arrays = {
        "no images": np.zeros((0, 2, 4), "f4"),
        "flat": np.zeros((2, 4), "f4"),
        "text": np.array([["a"]]),
        "objects": np.array([None], object),
        "integers": np.zeros((2, 3, 4), "i8"),
        "complex": np.zeros((2, 3, 4), "c8"),
        "seven images": np.zeros((7, 3, 4), "f4"),
        "one number": np.float32(1),
        "no regions": np.zeros((2, 0, 4), "f4"),
    }
    texts = {"caps": b"a dog\n" * 10, "ids": b"1\n2\n"}
    for case, array in arrays.items():
        yield _precomp(cases, case, {**texts, "ims": array}, ["1", "2"] if case == "flat" else None)
    good = np.zeros((2, 3, 4), "f4")
    yield _precomp(cases, "right", {**texts, "ims": good}, ["1", "2"])
    for case, changed in {
        "a caption too few": {"caps": b"a\n" * 9},
        "no captions": {"caps": b""},
        "captions that are not UTF-8": {"caps": b"\xff\n" * 10},
        "ids twice": {"ids": b"1\n1\n"},
        "an id too many": {"ids": b"1\n2\n3\n"},
        "no ids": {"ids": b""},
    }.items():
        yield _precomp(cases, case, {**texts, "ims": good, **changed}, None)


def _precomp(cases: _Cases, case: str, files: dict[str, Any], ids: list[str] | None) -> Case:
    cases._number += 1
    folder = cases._root / str(cases._number)
    folder.mkdir(parents=True)
    for name, content in files.items():
        if isinstance(content, bytes):
            (folder / f"train_{name}.txt").write_bytes(content)
        else:
            np.save(folder / f"train_{name}.npy", content)

    def read() -> None:
        records = list(build_dataset("precomputed", root=str(folder)).records("train"))
        for record in records:
            PrecomputedExtractor().load(record.image_uri)
        print(json.dumps([record.image_id for record in records]))

    return Case(f"precomputed: {case}", read, lambda printed: ids is not None and json.loads(printed) == ids)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_files_of_captions(tmp_path: Path) -> None:
    cases = _Cases(tmp_path)
    found = [
        *captions(cases),
        *names(cases),
        *encodings(cases),
        *tables(cases),
        *annotations(cases),
        *precomputed(cases),
    ]
    defects = attacked("data set files", found)
    assert not defects, "\n".join(defects)

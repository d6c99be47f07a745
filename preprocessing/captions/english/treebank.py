"""Sentences of a Universal Dependencies treebank: reading CoNLL-U, and handing them to spaCy."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spacy.tokens import Doc
    from spacy.vocab import Vocab

# The features that spaCy's rules for lemmas ask for; they follow from the Penn tag alone.
_FEATURES_OF_TAG = {
    "NN": "Number=Sing",
    "NNS": "Number=Plur",
    "NNP": "Number=Sing",
    "NNPS": "Number=Plur",
    "VB": "VerbForm=Inf",
    "VBP": "Tense=Pres|VerbForm=Fin",
    "VBZ": "Number=Sing|Person=3|Tense=Pres|VerbForm=Fin",
    "VBD": "Tense=Past|VerbForm=Fin",
    "VBN": "Tense=Past|VerbForm=Part",
    "VBG": "Tense=Pres|VerbForm=Part",
    "JJ": "Degree=Pos",
    "JJR": "Degree=Cmp",
    "JJS": "Degree=Sup",
    "RBR": "Degree=Cmp",
    "RBS": "Degree=Sup",
}


@dataclass(frozen=True, slots=True)
class Word:
    """A syntactic word.

    Attributes:
        form: as written.
        lemma: base form.
        upos: universal part of speech.
        xpos: Penn Treebank tag.
        head: index of the head in the sentence, from 0; the root has -1.
        relation: its dependency label.
        space_after: whether a space follows in the text.
    """

    form: str
    lemma: str
    upos: str
    xpos: str
    head: int
    relation: str
    space_after: bool = True


def read_conllu(path: Path) -> Iterator[list[Word]]:
    """Read the sentences of a CoNLL-U file, gzipped or not.

    Multi-word tokens ("don't") become their words ("do", "n't") without a space between them; empty nodes are left out.

    Raises:
        ValueError: a line has not ten columns, or a head is not a word of its sentence.
    """
    open_text = gzip.open if path.suffix == ".gz" else open
    with open_text(path, "rt", encoding="utf-8") as lines:
        rows: list[list[str]] = []
        for number, line in enumerate(lines, 1):
            text = line.rstrip("\n")
            if not text:
                if rows:
                    yield _sentence(rows, f"{path}, before line {number}")
                rows = []
            elif not text.startswith("#"):
                rows.append(text.split("\t"))
                if len(rows[-1]) != 10:
                    raise ValueError(f"{path}, line {number}: a word has 10 columns, here are {len(rows[-1])}")
        if rows:
            yield _sentence(rows, f"{path}, at its end")


def _sentence(rows: Sequence[Sequence[str]], where: str) -> list[Word]:
    words = []
    glued_up_to, space_after_token = 0, True
    n = sum(row[0].isdigit() for row in rows)
    for row in rows:
        space_after = "SpaceAfter=No" not in row[9].split("|")
        if "-" in row[0]:
            glued_up_to, space_after_token = int(row[0].split("-")[1]), space_after
        if not row[0].isdigit():
            continue
        number, head = int(row[0]), int(row[6])
        if not 0 <= head <= n:
            raise ValueError(f"{where}: word {number} has head {head}, the sentence has {n} words")
        if number <= glued_up_to:
            space_after = space_after_token and number == glued_up_to
        words.append(Word(row[1], row[2], row[3], row[4], head - 1, row[7], space_after))
    return words


def to_doc(vocab: Vocab, sentences: Iterable[Sequence[Word]]) -> Doc:
    """One document of the given sentences, with every annotation that the pipeline learns."""
    from spacy.tokens import Doc

    words: list[Word] = []
    heads: list[int] = []
    starts: list[bool] = []
    for sentence in sentences:
        first = len(words)
        heads += [first + (i if word.head < 0 else word.head) for i, word in enumerate(sentence)]
        starts += [i == 0 for i in range(len(sentence))]
        words += sentence
    doc = Doc(
        vocab,
        words=[word.form for word in words],
        spaces=[word.space_after for word in words],
        tags=[word.xpos for word in words],
        pos=[word.upos for word in words],
        morphs=[_FEATURES_OF_TAG.get(word.xpos, "") for word in words],
        lemmas=[word.lemma for word in words],
        heads=heads,
        deps=["ROOT" if word.head < 0 else word.relation for word in words],
    )
    for token, starts_sentence in zip(doc, starts, strict=True):
        if token.is_sent_start != starts_sentence:
            raise ValueError(f"the tree of {doc.text!r} has more than one root")
    return doc

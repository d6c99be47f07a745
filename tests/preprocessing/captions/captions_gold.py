"""Captions with hand-made trees: the words come from Flickr8k, the trees from the file next to this one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from preprocessing.captions.english.treebank import Word, read_conllu

ASSET = Path(__file__).parent / "assets" / "captions_gold.conllu"


def read_gold_captions(tokens: Path) -> list[list[Word]]:
    """The annotated captions with their words, out of Flickr8k.token.txt; lemmas are left empty."""
    texts = dict(line.split("\t") for line in tokens.read_text(encoding="utf-8").splitlines())
    lines = ASSET.read_text(encoding="utf-8").splitlines()
    names = [line.removeprefix("# sent_id = ") for line in lines if line.startswith("# sent_id = ")]
    offsets = [line.rsplit("Chars=", 1)[1].split(":") for line in lines if "\tChars=" in line]
    spans = iter([(int(start), int(end)) for start, end in offsets])
    captions = []
    for name, sentence in zip(names, read_conllu(ASSET), strict=True):
        text = texts[name]
        words = []
        for word in sentence:
            start, end = next(spans)
            words.append(replace(word, form=text[start:end], lemma="", space_after=not text[end : end + 1].strip()))
        captions.append(words)
    return captions

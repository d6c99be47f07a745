"""Reading CoNLL-U: multi-word tokens, empty nodes, spaces, and what is no tree."""

from __future__ import annotations

import gzip
from pathlib import Path

import spacy

from preprocessing.captions.english.treebank import Word, read_conllu, to_doc

DOGS = """\
# text = Dogs don't bark.
1\tDogs\tdog\tNOUN\tNNS\tNumber=Plur\t4\tnsubj\t4:nsubj\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t4:aux\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t4:advmod\t_
3.1\tever\tever\tADV\tRB\t_\t_\t_\t4:advmod\t_
4\tbark\tbark\tVERB\tVB\t_\t0\troot\t0:root\tSpaceAfter=No
5\t.\t.\tPUNCT\t.\t_\t4\tpunct\t4:punct\t_
"""
EXPECTED = [
    Word("Dogs", "dog", "NOUN", "NNS", 3, "nsubj"),
    Word("do", "do", "AUX", "VBP", 3, "aux", space_after=False),
    Word("n't", "not", "PART", "RB", 3, "advmod"),
    Word("bark", "bark", "VERB", "VB", -1, "root", space_after=False),
    Word(".", ".", "PUNCT", ".", 3, "punct"),
]


def test_words(tmp_path: Path) -> None:
    plain, packed = tmp_path / "dogs.conllu", tmp_path / "dogs.conllu.gz"
    plain.write_text(f"{DOGS}\n{DOGS}", encoding="utf-8")
    packed.write_bytes(gzip.compress(DOGS.encode()))
    assert list(read_conllu(plain)) == [EXPECTED, EXPECTED]
    assert list(read_conllu(packed)) == [EXPECTED]


def test_document_of_two_sentences() -> None:
    doc = to_doc(spacy.blank("en").vocab, [EXPECTED, EXPECTED])
    assert doc.text == "Dogs don't bark. Dogs don't bark. "
    assert [sentence.start for sentence in doc.sents] == [0, 5]
    assert [token.head.i for token in doc] == [3, 3, 3, 3, 3, 8, 8, 8, 8, 8]
    assert [token.dep_ for token in doc[:5]] == ["nsubj", "aux", "advmod", "ROOT", "punct"]
    assert [str(token.morph) for token in doc[:5]] == ["Number=Plur", "Tense=Pres|VerbForm=Fin", "", "VerbForm=Inf", ""]
    assert [token.lemma_ for token in doc[:5]] == ["dog", "do", "not", "bark", "."]

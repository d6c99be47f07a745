"""Sentences of a treebank: reading CoNLL-U, parts that resemble captions, spaCy's documents and lemma tables."""

import gzip
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from spacy.lookups import Lookups
from spacy.tokens import Doc, Token
from spacy.training.converters import conllu_to_docs
from spacy.vocab import Vocab

from preprocessing.reading import damage_as

_TAGS = yaml.safe_load(Path(__file__).with_name("tags.yaml").read_text(encoding="utf-8"))
UPOS_OF_TAG: dict[str, str] = _TAGS["upos"]
_FEATURES_OF_TAG: dict[str, str] = _TAGS["features"]
_RULES: dict[str, list[list[str]]] = _TAGS["lemma_rules"]


@dataclass(frozen=True, slots=True)
class Word:
    """A syntactic word, in the terms of CoNLL-U; `head` is an index in the sentence from 0, -1 for the root."""

    form: str
    lemma: str
    upos: str
    xpos: str
    head: int
    relation: str
    space_after: bool = True


def read_conllu(path: Path) -> Iterator[list[Word]]:
    """Read the sentences of a CoNLL-U file, gzipped or not; raise ValueError if it is another file.

    Multi-word tokens ("don't") become their words ("do", "n't") without a space between them; empty nodes are left out.
    """
    open_text = gzip.open if path.suffix == ".gz" else open
    with (
        damage_as(ValueError, f"{path}: not CoNLL-U", "copy it again"),
        open_text(path, "rt", encoding="utf-8") as file,
    ):
        for doc in conllu_to_docs(file.read(), n_sents=1, no_print=True):
            yield [_word(token) for token in doc]


def _word(token: Token) -> Word:
    head, relation = (-1, "root") if token.head == token else (token.head.i, token.dep_)
    return Word(token.text, token.lemma_, token.pos_, token.tag_, head, relation, bool(token.whitespace_))


def to_doc(vocab: Vocab, sentences: Iterable[Sequence[Word]]) -> Doc:
    """Return one document of the given sentences, with every annotation that the pipeline learns."""
    doc = Doc.from_docs([_sentence_doc(vocab, sentence) for sentence in sentences], ensure_whitespace=False)
    assert doc is not None, "a document has a sentence"
    return doc


def _sentence_doc(vocab: Vocab, words: Sequence[Word]) -> Doc:
    doc = Doc(
        vocab,
        words=[word.form for word in words],
        spaces=[word.space_after for word in words],
        tags=[word.xpos for word in words],
        pos=[word.upos for word in words],
        morphs=[_FEATURES_OF_TAG.get(word.xpos, "") for word in words],
        lemmas=[word.lemma for word in words],
        heads=[i if word.head < 0 else word.head for i, word in enumerate(words)],
        deps=["ROOT" if word.head < 0 else word.relation for word in words],
    )
    if sum(word.head < 0 for word in words) != 1:
        raise ValueError(f"the tree of {doc.text!r} has more than one root")
    return doc


# Dependents that stay with a noun when its phrase is cut out of the sentence.
_KEPT = frozenset({"det", "amod", "nummod", "compound", "nmod", "nmod:poss", "acl", "acl:relcl", "conj", "flat"})
# At least one of these makes a phrase worth cutting out.
_WANTED = frozenset({"nmod", "acl", "acl:relcl"})
_LENGTHS = range(4, 26)


def lower_cased(sentence: Sequence[Word]) -> list[Word]:
    """Return a sentence in lower case."""
    return [replace(word, form=word.form.lower()) for word in sentence]


def without_stop(sentence: Sequence[Word]) -> list[Word]:
    """Return a sentence without its final full stop, if it has one."""
    *words, last = sentence
    if last.form != "." or last.relation != "punct" or not words:
        return list(sentence)
    return words


def stop_apart(sentence: Sequence[Word]) -> list[Word]:
    """Return a sentence with a space before the final punctuation."""
    return [*sentence[:-2], *(replace(word, space_after=True) for word in sentence[-2:-1]), *sentence[-1:]]


def noun_phrases(sentence: Sequence[Word]) -> Iterator[list[Word]]:
    """Yield noun phrases with a prepositional phrase, participle or relative clause, as sentences of their own."""
    for i, word in enumerate(sentence):
        if word.upos != "NOUN":
            continue
        children = [j for j, other in enumerate(sentence) if other.head == i and other.relation in _KEPT]
        if not _WANTED & {sentence[j].relation for j in children}:
            continue
        kept = sorted({i}.union(*(_subtree(sentence, j) for j in children)))
        if len(kept) in _LENGTHS and kept[-1] - kept[0] == len(kept) - 1:
            yield _cut(sentence, kept, root=i)


def _subtree(sentence: Sequence[Word], top: int) -> set[int]:
    found, frontier = {top}, {top}
    while frontier:
        frontier = {j for j, word in enumerate(sentence) if word.head in frontier}
        found |= frontier
    return found


def _cut(sentence: Sequence[Word], kept: Collection[int], root: int) -> list[Word]:
    position = {old: new for new, old in enumerate(kept)}
    words = [replace(sentence[i], head=position.get(sentence[i].head, -1)) for i in kept]
    words[position[root]] = replace(sentence[root], head=-1, relation="root")
    stop = Word(".", ".", "PUNCT", ".", position[root], "punct")
    return [*words[:-1], replace(words[-1], space_after=True), stop]


# Names keep their form; punctuation and the like have none.
_WITHOUT_TABLES = frozenset({"PROPN", "PUNCT", "SYM", "X", "SPACE"})


def lemma_tables(sentences: Iterable[Sequence[Word]]) -> Lookups:
    """Return tables for ``lemmatizer`` in its mode "rule".

    Exceptions hold the lemma most often given to a word and part of speech, if the word is not its own lemma or a rule
    would change it. The index, which rules prefer, holds lemmas seen more than once: others are often misspelt.
    """
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for sentence in sentences:
        for word in sentence:
            if word.upos not in _WITHOUT_TABLES:
                counts[word.upos.lower()][word.form.lower()][word.lemma] += 1
    exceptions: dict[str, dict[str, list[str]]] = {}
    index: dict[str, list[str]] = {}
    for upos, lemmas_of in sorted(counts.items()):
        endings = tuple(ending for ending, _ in _RULES.get(upos, ()))
        usual = {form: lemmas.most_common(1)[0][0] for form, lemmas in sorted(lemmas_of.items())}
        exceptions[upos] = {
            form: [lemma]
            for form, lemma in usual.items()
            # Without rules, spaCy gives a word that is not an exception back as it is written: "A", not "a".
            if form != lemma or not endings or form.endswith(endings)
        }
        totals = sum(lemmas_of.values(), Counter[str]())
        index[upos] = sorted(lemma for lemma, n in totals.items() if n > 1) if upos in _RULES else []
    lookups = Lookups()
    lookups.add_table("lemma_rules", _RULES)
    lookups.add_table("lemma_exc", exceptions)
    lookups.add_table("lemma_index", index)
    return lookups

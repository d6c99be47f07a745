"""Lemmas looked up once for each word, in place of spaCy's lemmatizer on each token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.pipeline import Lemmatizer
    from spacy.tokens import Doc

_NAME = "lemmatizer"


class Lemmas:
    """The lemmas that a pipeline's lemmatizer gives, remembered.

    spaCy's lemmatizers that go by rules and tables look at a token's form, part of speech and features alone. They are
    left out of the pipeline (`replaced` names them); others, which look at the sentence, stay in it.
    """

    def __init__(self, nlp: Language) -> None:
        from spacy.pipeline import Lemmatizer

        component = nlp.get_pipe(_NAME) if _NAME in nlp.pipe_names else None
        by_tables = isinstance(component, Lemmatizer) and component.mode in ("rule", "lookup", "pos_lookup")
        self._lemmatizer: Lemmatizer | None = component if by_tables else None
        self._known: dict[tuple[int, int, int], int] = {}
        self.replaced = [_NAME] if by_tables else []

    def complete(self, doc: Doc, lemmas: list[int], words: Sequence[tuple[int, int, int]]) -> list[int]:
        """The lemmas of a caption as spaCy's hashes: those that other components have given, where they are not 0.

        `words` are the form, part of speech and features of each token, as hashes.
        """
        if self._lemmatizer is None:
            return lemmas
        try:
            found = [self._known[word] for word in words]
        except KeyError:
            for token, word in zip(doc, words, strict=True):
                self._known[word] = doc.vocab.strings.add(self._lemmatizer.lemmatize(token)[0])
            found = [self._known[word] for word in words]
        if self._lemmatizer.overwrite:
            return found
        return [lemma or table for lemma, table in zip(lemmas, found, strict=True)]

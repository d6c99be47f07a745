"""Accuracy and speed of a spaCy pipeline on sentences whose trees are known."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from preprocessing.captions.english.treebank import Word, to_doc

if TYPE_CHECKING:
    from spacy.language import Language

_MEASURES = {
    "unlabelled_attachment": "dep_uas",
    "labelled_attachment": "dep_las",
    "universal_tags": "pos_acc",
    "penn_tags": "tag_acc",
    "lemmas": "lemma_acc",
}


def evaluate(nlp: Language, sentences: Sequence[Sequence[Word]], from_text: bool = False) -> dict[str, float]:
    """Compare a pipeline's parses with the given trees, each sentence by itself.

    Args:
        nlp: the pipeline.
        sentences: with their trees.
        from_text: cut the text into words with the pipeline's own tokenizer, as users do, instead of taking the words
            as given. Words cut differently count as errors of recall.

    Returns:
        Percentages of words: unlabelled and labelled attachment (without punctuation), universal part of speech, Penn
        tag, lemma.
    """
    from spacy.tokens import Doc
    from spacy.training import Example

    examples = []
    for sentence in sentences:
        reference = to_doc(nlp.vocab, [sentence])
        words, spaces = [token.text for token in reference], [bool(token.whitespace_) for token in reference]
        predicted = nlp.make_doc(reference.text) if from_text else Doc(nlp.vocab, words=words, spaces=spaces)
        examples.append(Example(predicted, reference))
    scores = nlp.evaluate(examples)
    return {measure: round(100 * scores[key], 2) for measure, key in _MEASURES.items() if scores.get(key) is not None}


def words_per_second(nlp: Language, sentences: Sequence[Sequence[Word]]) -> float:
    """Speed of ``nlp.pipe`` over the texts of sentences, in words a second of processor time."""
    texts = [to_doc(nlp.vocab, [sentence]).text for sentence in sentences]
    start = time.process_time()
    words = sum(len(doc) for doc in nlp.pipe(texts))
    return words / (time.process_time() - start)

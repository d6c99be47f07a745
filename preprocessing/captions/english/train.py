"""Train the English pipeline that ships with the package.

    python -m preprocessing.captions.english.train --treebank $VSE_DATA/ud_english_ewt

reads the Universal Dependencies English Web Treebank (``train.conllu.gz``, ``dev.conllu.gz``), adds sentences that are
more like captions, trains after ``config.cfg`` and writes ``model/`` and ``evaluation.json`` next to this file. The
same seed and machine give the same weights.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import spacy
import yaml
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.training.initialize import init_nlp
from spacy.training.loop import train as run
from spacy.util import load_config
from thinc.api import NumpyOps, set_current_ops

from preprocessing.captions.english.templates import write_captions
from preprocessing.captions.english.treebank import (
    Word,
    lemma_tables,
    lower_cased,
    noun_phrases,
    read_conllu,
    stop_apart,
    to_doc,
    without_stop,
)

FOLDER = Path(__file__).resolve().parent
N_TEMPLATES = 12_000
Sentence = list[Word]

_MEASURES = {
    "unlabelled_attachment": "dep_uas",
    "labelled_attachment": "dep_las",
    "universal_tags": "pos_acc",
    "penn_tags": "tag_acc",
    "lemmas": "lemma_acc",
}


def compose(treebank: Sequence[Sentence], seed: int, templates: int = N_TEMPLATES) -> list[list[Sentence]]:
    """Return the documents to train on: the treebank's sentences, and those that resemble captions.

    The former stand alone or a few together; the latter are treebank sentences in the casing and punctuation of
    captions, noun phrases cut out of them, and captions from templates.
    """
    rng = Random(seed)
    documents = list(_grouped(treebank, rng))
    documents += [[_recast(sentence, rng)] for sentence in treebank if len(sentence) <= 30 and rng.random() < 0.3]
    for sentence in treebank:
        for phrase in noun_phrases(sentence):
            cased = lower_cased(phrase) if rng.random() < 0.5 else phrase
            documents.append([without_stop(cased) if rng.random() < 0.4 else cased])
    documents += [[caption] for caption in write_captions(templates, rng)]
    rng.shuffle(documents)
    return documents


def _grouped(treebank: Sequence[Sentence], rng: Random) -> Iterator[list[Sentence]]:
    """Yield most sentences alone, as captions are; the others by two or three, to teach where one ends."""
    first = 0
    while first < len(treebank):
        n = 1 if rng.random() < 0.6 else rng.randint(2, 3)
        yield list(treebank[first : first + n])
        first += n


def _recast(sentence: Sentence, rng: Random) -> Sentence:
    apart = stop_apart(sentence)
    cased = lower_cased(apart) if rng.random() < 0.7 else apart
    return without_stop(cased) if rng.random() < 0.5 else cased


def train(documents: Sequence[Sequence[Sentence]], dev: Sequence[Sentence], seed: int) -> Language:
    """Train tagger, morphologizer and parser after ``config.cfg``; return the best on ``dev``, with the lemmatizer."""
    with tempfile.TemporaryDirectory() as name:
        folder, vocab = Path(name), spacy.blank("en").vocab
        parts = {"train": documents, "dev": [[sentence] for sentence in dev]}
        for part, of_part in parts.items():
            DocBin(docs=[to_doc(vocab, sentences) for sentences in of_part]).to_disk(folder / f"{part}.spacy")
        paths = {f"paths.{part}": str(folder / f"{part}.spacy") for part in parts}
        nlp = init_nlp(load_config(FOLDER / "config.cfg", {**paths, "system.seed": seed}))
        (folder / "output").mkdir()
        _, best = run(nlp, folder / "output", stdout=sys.stdout, stderr=sys.stderr)
        trained = spacy.load(best)
    # spaCy takes every verb in the present that is not third person singular for its own lemma.
    be = trained.add_pipe("attribute_ruler")
    be.add([[{"LOWER": {"IN": ["am", "are", "'re", "'m"]}, "POS": "VERB"}]], {"LEMMA": "be"})
    tables = lemma_tables([sentence for document in documents for sentence in document])
    trained.add_pipe("lemmatizer", config={"mode": "rule"}).initialize(lookups=tables)
    # The configuration that is saved must not name the temporary folder.
    trained.config["paths"] |= dict.fromkeys(parts)
    trained.meta.update(yaml.safe_load((FOLDER / "meta.yaml").read_text(encoding="utf-8")))
    return trained


def evaluate(nlp: Language, sentences: Sequence[Sequence[Word]], from_text: bool = False) -> dict[str, float]:
    """Compare a pipeline's parses with the given trees, each sentence by itself; the measures in per cent of words.

    With ``from_text`` the pipeline's own tokenizer cuts the text into words, as users do; words cut differently count
    as errors of recall. Attachment is without punctuation.
    """
    examples = []
    for sentence in sentences:
        reference = to_doc(nlp.vocab, [sentence])
        words, spaces = [token.text for token in reference], [bool(token.whitespace_) for token in reference]
        predicted = nlp.make_doc(reference.text) if from_text else Doc(nlp.vocab, words=words, spaces=spaces)
        examples.append(Example(predicted, reference))
    scores = nlp.evaluate(examples)
    return {measure: round(100 * scores[key], 2) for measure, key in _MEASURES.items() if scores.get(key) is not None}


def main() -> None:
    """Parse the command line, train, measure, write."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("VSE_DATA") or "../shared/data")
    arguments.add_argument("--treebank", type=Path, default=data / "ud_english_ewt", help="folder of the treebank")
    arguments.add_argument("--captions", type=Path, help="CoNLL-U file of captions to measure on as well")
    arguments.add_argument("--output", type=Path, default=FOLDER, help="where model/ and evaluation.json are written")
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    # Thinc's own BLAS falls back to plain C on processors that it does not know: a third of NumPy's speed.
    set_current_ops(NumpyOps(use_blis=False))
    dev = list(read_conllu(options.treebank / "dev.conllu.gz"))
    nlp = train(compose(list(read_conllu(options.treebank / "train.conllu.gz")), options.seed), dev, options.seed)
    parts = {"ewt_dev": dev, **({"captions": list(read_conllu(options.captions))} if options.captions else {})}
    report = {}
    for name, sentences in parts.items():
        report[name] = evaluate(nlp, sentences)
        report[f"{name}_from_text"] = evaluate(nlp, sentences, from_text=True)
    shutil.rmtree(options.output / "model", ignore_errors=True)
    nlp.to_disk(options.output / "model")
    (options.output / "evaluation.json").write_text(json.dumps(report, indent=2) + "\n")
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

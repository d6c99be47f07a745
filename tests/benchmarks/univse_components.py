"""The words of relations that sentences and development captions share, and triples of a batch that are true elsewhere.

Run: python tests/benchmarks/univse_components.py
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import numpy as np
from reader import RESULTS
from univse_study import IMAGES, UNIVSE, configured, make_shards

from preprocessing.captions import tokenize
from preprocessing.captions.components import (
    ComponentTable,
    RelationForm,
    component_words,
    relation_words,
    triples_of,
)
from preprocessing.captions.graph import SceneGraph
from preprocessing.captions.graph_shards import read_captions
from preprocessing.captions.negatives import NegativeSampler
from preprocessing.captions.pools import Pools
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.shards.reader import ShardReader
from preprocessing.storage.atomic import write_json_atomic

BATCH, BATCHES, MIN_COUNT = 128, 200, 4


def vocabulary(texts: list[str], graphs: list[SceneGraph], form: RelationForm) -> Vocabulary:
    """Return the vocabulary of the training captions and their components."""
    return Vocabulary.build(texts, MIN_COUNT, component_words(graphs, MIN_COUNT, relations=form))


def coverage(known: Vocabulary, texts: list[str], dev: list[SceneGraph], form: RelationForm) -> dict[str, float]:
    """Count the words that no sentence has, and the distinct triples of the development captions with an unknown word.

    Shares are in per cent.
    """
    seen = set(chain.from_iterable(map(tokenize, texts))) | {"<pad>", "<start>", "<end>", "<unk>", "<mask>"}
    triples = set(chain.from_iterable(map(triples_of, dev)))

    def unknown(words: list[str]) -> bool:
        return any(known.find(word) is None for word in words)

    relations = sum(unknown(relation_words(relation, form)) for _, relation, _ in triples)
    whole = sum(unknown([subject, *relation_words(relation, form), thing]) for subject, relation, thing in triples)
    return {
        "vocabulary": len(known),
        "words_never_in_sentences": sum(known.word(word) not in seen for word in range(len(known))),
        "dev_triples": len(triples),
        "dev_triples_with_unknown_relation": round(100 * relations / len(triples), 1),
        "dev_triples_with_unknown_word": round(100 * whole / len(triples), 1),
    }


def true_elsewhere(images: list[list[SceneGraph]], known: Vocabulary) -> dict[str, float]:
    """Return the shares of triples, in per cent, that meet their like or a true one among other images' of a batch."""
    table = ComponentTable.build(images, known)
    sampler = NegativeSampler(table, Pools.build(chain.from_iterable(images)), known, 0)
    rng = np.random.default_rng(0)
    same, true = [], []
    for _ in range(BATCHES):
        captions_B = rng.choice(len(table), BATCH, replace=False)
        batch = sampler.batch(captions_B, 0)
        image_T = table.image_C[captions_B][batch.triple_owner_T]
        for number, owner, image in zip(batch.triple_numbers_T, batch.triple_owner_T, image_T, strict=True):
            others = batch.triple_numbers_T[image_T != image]
            same.append((others == number).any())
            true.append(np.isin(others, batch.true_triples_CX[owner]).any())
    return {"same": round(100 * float(np.mean(same)), 1), "true_of_the_image": round(100 * float(np.mean(true)), 1)}


def main() -> None:
    """Count and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "univse_components.json")
    parser.add_argument("--directory", type=Path, default=Path("runs/univse_study"), help="of shards")
    arguments = parser.parse_args()
    make_shards(configured(UNIVSE, (), 0), arguments.directory)
    train, dev = (
        [[caption.graph for caption in captions] for captions in read_captions(arguments.directory / split / "graphs")]
        for split in IMAGES
    )
    metas = ShardReader(arguments.directory / "train/features", "grid").metas()
    texts = [caption["text"] for meta in metas for caption in meta["captions"]]
    flat, dev_flat = list(chain.from_iterable(train)), list(chain.from_iterable(dev))
    result: dict[str, Any] = {"command": shlex.join(["python", *sys.argv]), "images": IMAGES, "batch": BATCH}
    for form in get_args(RelationForm):
        result[form] = coverage(vocabulary(texts, flat, form), texts, dev_flat, form)
    result["triples_that_meet_a_true_one"] = true_elsewhere(train, vocabulary(texts, flat, "words"))
    write_json_atomic(arguments.output, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

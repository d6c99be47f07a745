"""Dependencies of captions resolved by their images alone (UniVSE, section 4.4)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pipelines.evaluation.protocols.inputs import EvaluationInputs
from pipelines.evaluation.protocols.results import Results
from preprocessing.captions.components import nouns_of, pairs_of, triples_of
from vse_core.evaluation.dependency import (
    Dependencies,
    attribute_dependencies,
    candidate_similarities,
    evaluate_dependencies,
    relation_dependencies,
)


def dependencies(inputs: EvaluationInputs) -> Results:
    """Evaluate which noun an adjective belongs to, and which nouns a relation relates: accuracy, and that of chance.

    Metrics are ``dependencies/attributes_accuracy``, ``dependencies/attributes_chance`` and so on, in per cent; the
    parser's answers count as correct.
    """
    graphs = [caption.graph for captions in inputs.captions for caption in captions]
    image_of_C = torch.tensor([image for image, captions in enumerate(inputs.captions) for _ in captions])
    words: dict[str, int] = {}

    def number(word: str) -> int:
        return words.setdefault(word, len(words))

    nouns = [[number(noun) for noun in nouns_of(graph)] for graph in graphs]
    pairs = [[(number(a), number(n)) for a, n in pairs_of(graph)] for graph in graphs]
    triples = [[(number(s), number(r), number(o)) for s, r, o in triples_of(graph)] for graph in graphs]
    kinds: dict[str, Callable[[], Dependencies]] = {
        "attributes": lambda: attribute_dependencies(zip(nouns, pairs, strict=True)),
        "relations": lambda: relation_dependencies(zip(nouns, triples, strict=True)),
    }
    names = list(words)
    metrics: dict[str, float] = {}
    for kind, collect in kinds.items():
        found = collect()
        if not len(found.caption_G):
            continue
        phrases = [tuple(names[word] for word in candidate) for candidate in found.words_NW.tolist()]
        distinct = list(dict.fromkeys(phrases))
        rows = {phrase: row for row, phrase in enumerate(distinct)}
        candidates_ND = inputs.texts.embed_phrases(distinct)[[rows[phrase] for phrase in phrases]]
        caption_of_N = found.caption_G.repeat_interleave(found.first_G1.diff())
        scores_N = candidate_similarities(inputs.gallery.images_BKD, candidates_ND, image_of_C[caption_of_N])
        result = evaluate_dependencies(scores_N, found.first_G1, found.correct_N)
        metrics |= {f"dependencies/{kind}_{name}": value for name, value in result.as_dict().items()}
        metrics[f"dependencies/{kind}_skipped"] = float(found.skipped)
    accuracies = [
        f"{kind} {metrics[f'dependencies/{kind}_accuracy']:.1f} % (chance {metrics[f'dependencies/{kind}_chance']:.1f})"
        for kind in kinds
        if f"dependencies/{kind}_accuracy" in metrics
    ]
    return Results("dependencies", metrics, f"dependencies: {', '.join(accuracies) or 'none to resolve'}")

"""Images retrieved by objects, attributes and relations (UniVSE, section 4.3)."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch

from pipelines.evaluation.protocols.inputs import EvaluationInputs
from pipelines.evaluation.protocols.results import Results
from pipelines.kinds.component_embedder import Phrase
from preprocessing.captions.components import nouns_of, pairs_of, triples_of
from vse_core.evaluation.ranks import RelevantItems
from vse_core.evaluation.unified import evaluate_unified

PhrasesOfImages = Sequence[Sequence[Phrase]]
"""The phrases of each image of the split."""


def components(inputs: EvaluationInputs) -> Results:
    """Evaluate every kind of component as a query: mean average precision, next to that of a random ranking.

    Every distinct component of the split's captions is a query, and all images whose captions have it are relevant.
    With detections, the labels are queries as well ("detected_objects"; of several words, "hot dog", the last is the
    noun and the others describe it).
    Metrics are ``components/objects_map`` and so on, in per cent; ``components/sum`` adds them up, those of detections
    as well if there are any (table 3).
    """
    kinds = _phrases(inputs)
    metrics: dict[str, float] = {"components/sum": 0.0}
    maps = []
    for kind, of_images in kinds.items():
        if not any(of_images):
            continue
        metrics |= {f"components/{kind}_{name}": value for name, value in _evaluate(inputs, of_images).items()}
        precision = metrics[f"components/{kind}_map"]
        metrics["components/sum"] += precision
        maps.append(f"{kind} {precision:.1f}")
    summary = f"mAP of {', '.join(maps) or 'nothing'}"
    return Results("components", metrics, summary)


def _phrases(inputs: EvaluationInputs) -> dict[str, PhrasesOfImages]:
    """Return the phrases of each image by their kind."""
    graphs = [[inputs.texts.as_read(caption.graph) for caption in captions] for captions in inputs.captions]
    kinds: dict[str, PhrasesOfImages] = {
        "objects": [[(noun,) for graph in of_image for noun in nouns_of(graph)] for of_image in graphs],
        "attributes": [[pair for graph in of_image for pair in pairs_of(graph)] for of_image in graphs],
        "relations": [[triple for graph in of_image for triple in triples_of(graph)] for of_image in graphs],
    }
    if inputs.detections is not None:
        kinds["detected_objects"] = [[_label_phrase(name) for name in names] for names in inputs.detections]
    return kinds


def _label_phrase(name: str) -> Phrase:
    *before, noun = name.split()
    return (" ".join(before), noun) if before else (noun,)


def _evaluate(inputs: EvaluationInputs, of_images: Iterable[Sequence[Phrase]]) -> dict[str, float]:
    """Search with every distinct phrase for the images that have it."""
    images: dict[Phrase, list[int]] = defaultdict(list)
    for image, phrases in enumerate(of_images):
        for phrase in dict.fromkeys(phrases):
            images[phrase].append(image)
    query_P = torch.tensor([query for query, found in enumerate(images.values()) for _ in found])
    image_P = torch.tensor([image for found in images.values() for image in found])
    relevant = RelevantItems.of_pairs(query_P, image_P, len(images))
    queries_QD = inputs.texts.embed_phrases(list(images))
    return evaluate_unified(queries_QD, inputs.gallery.images_BKD, relevant)

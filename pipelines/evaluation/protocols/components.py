"""Images retrieved by objects, attributes and relations (UniVSE, section 4.3), and where they are found."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure

from pipelines.evaluation.protocols.inputs import EvaluationInputs, spread
from pipelines.evaluation.protocols.results import Results
from pipelines.kinds.component_embedder import Phrase
from preprocessing.captions.components import nouns_of, pairs_of, triples_of
from preprocessing.features.images import load_image
from vse_core.evaluation.ranks import RelevantItems
from vse_core.evaluation.relevance_plots import plot_relevance
from vse_core.evaluation.unified import evaluate_unified, relevance

PhrasesOfImages = Sequence[Sequence[Phrase]]
"""The phrases of each image of the split."""

_IMAGES = 4
_OBJECTS_AN_IMAGE, _PAIRS_AN_IMAGE = 3, 2


def components(inputs: EvaluationInputs) -> Results:
    """Evaluate every kind of component as a query: mean average precision, next to that of a random ranking.

    Every distinct component of the split's captions is a query, and all images whose captions have it are relevant.
    With detections, the labels are queries as well ("detected_objects"; of several words, "hot dog", the last is the
    noun and the others describe it).
    Metrics are ``components/objects_map`` and so on, in per cent; ``components/sum`` adds up the three kinds of
    captions' components.
    """
    kinds = _phrases(inputs)
    metrics: dict[str, float] = {"components/sum": 0.0}
    maps = []
    for kind, of_images in kinds.items():
        if not any(of_images):
            continue
        metrics |= {f"components/{kind}_{name}": value for name, value in _evaluate(inputs, of_images).items()}
        precision = metrics[f"components/{kind}_map"]
        metrics["components/sum"] += 0.0 if kind == "detected_objects" else precision
        maps.append(f"{kind} {precision:.1f}")
    summary = f"mAP of {', '.join(maps) or 'nothing'}"
    return Results("components", metrics, summary, relevance_figures(inputs, kinds["objects"], kinds["attributes"]))


def _phrases(inputs: EvaluationInputs) -> dict[str, PhrasesOfImages]:
    """Return the phrases of each image by their kind."""
    graphs = [[caption.graph for caption in captions] for captions in inputs.captions]
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


def relevance_figures(inputs: EvaluationInputs, objects: PhrasesOfImages, pairs: PhrasesOfImages) -> dict[str, Figure]:
    """Plot where UniVSE finds the objects and attributes of a few photographs with a grid of cells, else nothing."""
    embedder, reader = inputs.texts.components, inputs.reader
    if embedder is None:
        return {}
    described = [(image, grid) for image, found in enumerate(pairs) if found and (grid := reader.grid(image))]
    figures = {}
    for number, (image, (rows, columns, others)) in enumerate(spread(described, _IMAGES), start=1):
        features_1NF = torch.from_numpy(np.array(reader.features(image))).unsqueeze(0)
        regions_ND = embedder.embed_regions(features_1NF, torch.tensor([features_1NF.shape[1]]))[others:]
        phrases = list(dict.fromkeys(objects[image]))[:_OBJECTS_AN_IMAGE]
        phrases += list(dict.fromkeys(pairs[image]))[:_PAIRS_AN_IMAGE]
        queries_QD = embedder.embed_phrases(phrases)
        figures[f"relevance_{number}"] = plot_relevance(
            np.asarray(load_image(inputs.gallery.records[image].image_uri)),
            [" ".join(phrase) for phrase in phrases],
            relevance(queries_QD, regions_ND),
            (rows, columns),
            (queries_QD @ inputs.gallery.images_BKD[image, 0]).tolist(),
        )
    return figures

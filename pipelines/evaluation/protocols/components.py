"""Images retrieved by objects, attributes and relations (UniVSE, section 4.3), and where they are found."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from pipelines.evaluation.protocols.inputs import EvaluationInputs, spread
from pipelines.evaluation.protocols.results import Results
from pipelines.kinds.component_embedder import Phrase
from preprocessing.captions.components import nouns_of, pairs_of, triples_of
from preprocessing.features.images import load_image
from vse_core.evaluation.ranks import RelevantItems
from vse_core.evaluation.relevance import relevance
from vse_core.evaluation.relevance_plots import plot_relevance
from vse_core.evaluation.unified import evaluate_unified

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)

_IMAGES = 4
# Features that are cells or patches.
_CELLS = ("grid", "patches")
_OBJECTS_AN_IMAGE, _PAIRS_AN_IMAGE = 3, 2


def components(inputs: EvaluationInputs) -> Results:
    """Evaluate every kind of component as a query: mean average precision, next to that of a random ranking.

    Every distinct component of the split's captions is a query, and all images whose captions have it are relevant.
    With detections, the labels are queries as well ("detected_objects"; of several words, "hot dog", the last is the
    noun and the others describe it).
    Metrics are ``components/objects_map`` and so on, in per cent; ``components/sum`` adds up the three kinds of
    captions' components.
    """
    graphs = [[caption.graph for caption in captions] for captions in inputs.captions]
    kinds: dict[str, list[list[Phrase]]] = {
        "objects": [[(noun,) for graph in of_image for noun in nouns_of(graph)] for of_image in graphs],
        "attributes": [[pair for graph in of_image for pair in pairs_of(graph)] for of_image in graphs],
        "relations": [[triple for graph in of_image for triple in triples_of(graph)] for of_image in graphs],
    }
    if inputs.detections is not None:
        kinds["detected_objects"] = [[_label_phrase(name) for name in names] for names in inputs.detections]
    metrics: dict[str, float] = {}
    for kind, of_images in kinds.items():
        relevant = _relevant(of_images)
        if relevant:
            query_P = torch.tensor([query for query, images in enumerate(relevant.values()) for _ in images])
            image_P = torch.tensor([image for images in relevant.values() for image in images])
            relevant_images = RelevantItems.of_pairs(query_P, image_P, len(relevant))
            queries_QD = inputs.texts.embed_phrases(list(relevant))
            found = evaluate_unified(queries_QD, inputs.gallery.images_BKD, relevant_images)
            metrics |= {f"components/{kind}_{name}": value for name, value in found.items()}
    maps = {kind: metrics[f"components/{kind}_map"] for kind in kinds if f"components/{kind}_map" in metrics}
    metrics["components/sum"] = sum(value for kind, value in maps.items() if kind != "detected_objects")
    summary = ", ".join(f"{kind} {value:.1f}" for kind, value in maps.items())
    return Results("components", metrics, f"mAP of {summary or 'nothing'}", relevance_figures(inputs, kinds))


def _label_phrase(name: str) -> Phrase:
    *before, noun = name.split()
    return (" ".join(before), noun) if before else (noun,)


def _relevant(of_images: Sequence[Iterable[Phrase]]) -> dict[Phrase, list[int]]:
    """Return the distinct phrases in the order of their first image, and the images of each."""
    images: dict[Phrase, list[int]] = defaultdict(list)
    for image, phrases in enumerate(of_images):
        for phrase in dict.fromkeys(phrases):
            images[phrase].append(image)
    return images


def relevance_figures(inputs: EvaluationInputs, kinds: dict[str, list[list[Phrase]]]) -> dict[str, Figure]:
    """Plot where UniVSE finds the objects and attributes of a few photographs with a grid of cells, else nothing."""
    embedder, reader = inputs.texts.components, inputs.reader
    if embedder is None:
        return {}
    if reader.feature in _CELLS and reader.grid(0) is None:
        log.warning(
            "no relevance maps: the shards in %s are older than the record of rows and columns; delete this folder and "
            "extract again to have them",
            reader.directory,
        )
    described = {
        image: grid for image, pairs in enumerate(kinds["attributes"]) if pairs and (grid := reader.grid(image))
    }
    figures = {}
    for number, (image, (rows, columns, others)) in enumerate(spread(list(described.items()), _IMAGES), start=1):
        features_1NF = torch.from_numpy(np.array(reader.features(image))).unsqueeze(0)
        regions_ND = embedder.embed_regions(features_1NF, torch.tensor([features_1NF.shape[1]]))[others:]
        objects = list(dict.fromkeys(kinds["objects"][image]))[:_OBJECTS_AN_IMAGE]
        pairs = list(dict.fromkeys(kinds["attributes"][image]))[:_PAIRS_AN_IMAGE]
        queries_QD = torch.cat([embedder.embed_phrases(phrases) for phrases in (objects, pairs) if phrases])
        figures[f"relevance_{number}"] = plot_relevance(
            np.asarray(load_image(inputs.gallery.records[image].image_uri)),
            [" ".join(phrase) for phrase in (*objects, *pairs)],
            relevance(queries_QD, regions_ND),
            (rows, columns),
            (queries_QD @ inputs.gallery.images_BKD[image, 0]).tolist(),
        )
    return figures

"""The five terms of UniVSE's loss, written from the equations with loops over plain numbers."""

import math
from typing import Any

from tests.vse_core.losses.oracles import others
from vse_core.losses.components import ComponentVectors, UnifiedOutput

Vector = list[float]


def dot(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def hinge(margin: float, negatives: list[float], positive: float, which: str = "hardest") -> float:
    terms = [max(0.0, margin + negative - positive) for negative in negatives]
    return sum(terms) if which == "all" else max(terms, default=0.0)


def unified_terms(output: UnifiedOutput, ids: list[int], margin: float, mask: bool, which: str) -> dict[str, float]:
    images = [views[0] for views in output.images_bKD.tolist()]
    regions = [
        [row for row, real in zip(rows, reals, strict=True) if real]
        for rows, reals in zip(output.regions_bND.tolist(), output.region_mask_bN.tolist(), strict=True)
    ]
    everyone = range(len(ids))
    with_components = [b for b in everyone if output.has_components_b[b]]
    sentences, composed = output.sentences_bD.tolist(), output.composed_bD.tolist()
    objects = [(own, negatives, regions[b]) for own, negatives, b in items(output.objects)]
    pairs = [(own, negatives, regions[b]) for own, negatives, b in items(output.pairs)]
    attributes = 0.0
    for own, negatives, own_regions in pairs:
        half = len(negatives) // 2
        for group in (negatives[:half], negatives[half:]):
            attributes += local(own, group, own_regions, margin) / 2
    return {
        "sent": global_term(images, sentences, ids, list(everyone), margin, mask, which) / len(ids),
        "comp": global_term(images, composed, ids, with_components, margin, mask, which) / len(ids),
        "obj": sum(local(*item, margin) for item in objects) / max(len(objects), 1),
        "attr": attributes / max(len(pairs), 1),
        "rel": relations(images, output.triples, ids, margin),
    }


def items(kind: ComponentVectors) -> list[tuple[Vector, list[Vector], int]]:
    return [
        (vectors[0], vectors[1:], owner)
        for vectors, owner in zip(kind.vectors_MVD.tolist(), kind.owners_M.tolist(), strict=True)
    ]


def global_term(
    images: list[Vector], texts: list[Vector], ids: list[int], part: list[int], margin: float, mask: bool, which: str
) -> float:
    """Equation (1), over the captions that take part."""
    total = 0.0
    for b in part:
        own = dot(images[b], texts[b])
        rivals = others(ids, b, mask)
        total += hinge(margin, [dot(images[b], texts[j]) for j in rivals if j in part], own, which)
        total += hinge(margin, [dot(images[i], texts[b]) for i in rivals], own, which)
    return total


def local(own: Vector, negatives: list[Vector], regions: list[Vector], margin: float) -> float:
    """Equations (2) and (3)."""
    weights = [math.exp(dot(own, region)) for region in regions]
    total = 0.0
    for weight, region in zip(weights, regions, strict=True):
        hardest = max(dot(negative, region) for negative in negatives)
        total += weight / sum(weights) * max(0.0, margin + hardest - dot(own, region))
    return total


def relations(images: list[Vector], triples: ComponentVectors, ids: list[int], margin: float) -> float:
    total, everything = 0.0, items(triples)
    for own, negatives, b in everything:
        positive = dot(own, images[b])
        elsewhere = [dot(other, images[b]) for other, _, j in everything if ids[j] != ids[b]]
        total += hinge(margin, elsewhere, positive) / 2
        total += hinge(margin, [dot(negative, images[b]) for negative in negatives], positive) / 2
    return total / max(len(everything), 1)


def total(terms: dict[str, float], weights: dict[str, Any]) -> float:
    return sum(weights[name] * term for name, term in terms.items())

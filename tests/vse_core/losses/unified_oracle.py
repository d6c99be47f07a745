"""The five terms of UniVSE's loss, written from the equations with loops over plain numbers."""

import math
from typing import Any

from tests.vse_core.losses.oracles import others
from vse_core.losses.components import ComponentVectors, UnifiedOutput

Vector = list[float]


def dot(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def hinge(margin: float, negatives: list[float], positive: float, which: str = "hardest") -> float:
    terms = [margin + negative - positive for negative in negatives]
    violations = [term for term in terms if term > 0] or [0.0]
    return sum(violations) / len(violations) if which == "all" else max(violations)


def unified_terms(
    output: UnifiedOutput, ids: list[int], margin: float, mask: bool, which: str, temperature: float = 1.0
) -> dict[str, float]:
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
            attributes += local(own, group, own_regions, margin, temperature) / 2
    return {
        "sent": global_term(images, sentences, ids, list(everyone), margin, mask, which) / len(ids),
        "comp": global_term(images, composed, ids, with_components, margin, mask, which) / len(ids),
        "obj": sum(local(*item, margin, temperature) for item in objects) / max(len(objects), 1),
        "attr": attributes / max(len(pairs), 1),
        "rel": relations(images, output, margin),
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


def local(own: Vector, negatives: list[Vector], regions: list[Vector], margin: float, temperature: float) -> float:
    """Equations (2) and (3)."""
    weights = [math.exp(dot(own, region) / temperature) for region in regions]
    total = 0.0
    for weight, region in zip(weights, regions, strict=True):
        hardest = max(dot(negative, region) for negative in negatives)
        total += weight / sum(weights) * max(0.0, margin + hardest - dot(own, region))
    return total


def relations(images: list[Vector], output: UnifiedOutput, margin: float) -> float:
    total, everything = 0.0, items(output.triples)
    numbers = output.triple_numbers_T.tolist()
    for own, negatives, b in everything:
        positive = dot(own, images[b])
        true = set(output.true_triples_bX[b].tolist())
        elsewhere = [
            dot(other, images[b])
            for (other, _, _), number in zip(everything, numbers, strict=True)
            if number not in true
        ]
        total += hinge(margin, elsewhere, positive) / 2
        total += hinge(margin, [dot(negative, images[b]) for negative in negatives], positive) / 2
    return total / max(len(everything), 1)


def total(terms: dict[str, float], weights: dict[str, Any]) -> float:
    return sum(weights[name] * term for name, term in terms.items())

"""Naive forms of the losses, written from the equations with loops over plain numbers; s[i][k][j] is view k of image i
against caption j.
"""

import math
from collections.abc import Callable, Iterable

Sims = list[list[list[float]]]


def best(s: Sims, i: int, j: int) -> float:
    return max(view[j] for view in s[i])


def others(ids: list[int], anchor: int, mask: bool) -> list[int]:
    return [j for j in range(len(ids)) if j != anchor and not (mask and ids[j] == ids[anchor])]


def mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)


def multi_view(s: Sims, ids: list[int], bound: str, margin: float, negatives: str, mask: bool, lam: float) -> float:
    """Sum over the batch of one of the bounds of MV-VSE."""
    if bound == "joint":
        parts = [multi_view(s, ids, part, margin, negatives, mask, lam) for part in ("max", "up")]
        return lam * parts[0] + (1 - lam) * parts[1]
    if bound.startswith("journal"):
        soft = "_soft" if bound.endswith("soft") else ""
        parts = [multi_view(s, ids, part + soft, margin, negatives, mask, lam) for part in ("up_rough", "low")]
        return (lam * parts[0] + (1 - lam) * parts[1]) / 2
    total = 0.0
    for anchor in range(len(ids)):
        candidates = others(ids, anchor, mask)
        if candidates:
            total += direction(s, anchor, candidates, bound, margin, negatives, lambda j, a=anchor: (a, j))
            total += direction(s, anchor, candidates, bound, margin, negatives, lambda i, a=anchor: (i, a))
    return total


def direction(
    s: Sims,
    anchor: int,
    candidates: list[int],
    bound: str,
    margin: float,
    negatives: str,
    pair: Callable[[int], tuple[int, int]],
) -> float:
    """One anchor's terms; pair(candidate) gives the image and the caption of a negative pair."""
    views = range(len(s[0]))
    own = best(s, anchor, anchor)
    positives = [s[anchor][k][anchor] for k in views]
    at_views = [{c: s[pair(c)[0]][k][pair(c)[1]] for c in candidates} for k in views]
    at_best = {c: best(s, *pair(c)) for c in candidates}

    def hinges(positive: float, similarities: dict[int, float]) -> list[float]:
        terms = [max(0.0, margin - positive + similarity) for similarity in similarities.values()]
        return terms if negatives == "all" else [max(terms)]

    if bound == "max":
        return sum(hinges(own, at_best))
    if bound == "avg":
        return mean(sum(hinges(positives[k], at_views[k])) for k in views)
    if bound == "low":
        return mean(sum(hinges(own, at_views[k])) for k in views)
    if bound in ("up", "up_rough"):
        by_negative = zip(*(hinges(positives[k], at_best) for k in views), strict=True)
        # Equation (11): the indicator asks every view for a violation.
        return sum(mean(terms) for terms in by_negative if bound == "up_rough" or all(term > 0 for term in terms))
    assert bound in ("up_rough_soft", "low_soft")
    tau, totals = 0.01, []
    for k in views:
        positive, similarities = (own, at_views[k]) if bound == "low_soft" else (positives[k], at_best)
        violations = [margin - positive + similarity for similarity in similarities.values()]
        if negatives == "all":
            totals.append(sum(tau * math.log1p(math.exp(violation / tau)) for violation in violations))
        else:
            smooth = tau * math.log(sum(math.exp(violation / tau) for violation in violations) + math.exp(-1 / tau))
            totals.append(tau * math.log1p(math.exp(smooth / tau)))
    return mean(totals)


def maturity(s: Sims, variant: str) -> tuple[float, float]:
    """Alignment and uniformity of ADOPT."""
    count = len(s)
    pairs = [(i, j) for i in range(count) for j in range(count)]
    align = mean(best(s, i, i) for i in range(count))
    if variant == "paper":
        return align, math.log(mean(math.exp(best(s, i, j)) for i, j in pairs))
    return align, mean(math.exp(-(best(s, i, j) if i != j else 0.0)) for i, j in pairs)


def number_of_negatives(s: Sims, variant: str) -> int:
    count, (align, uniform) = len(s), maturity(s, variant)
    if variant == "paper":
        number = math.floor(count * math.cos((align + uniform) * math.pi / 4))
    else:
        number = int(math.cos(max(0.0, align + uniform) ** 1.25) * count) + 1
    return max(1, min(number, count - 1))


def adopt(s: Sims, ids: list[int], variant: str, tau: float, margin: float, mask: bool, number: int) -> float:
    totals = []
    for similarity in (lambda a, c: best(s, a, c), lambda a, c: best(s, c, a)):
        losses = []
        for a in range(len(ids)):
            candidates = {c: similarity(a, c) for c in others(ids, a, mask)}
            if variant == "release":
                candidates[a] = 0.0
            mined = sorted(candidates, key=lambda c: candidates[c], reverse=True)[:number]
            positive = similarity(a, a)
            if variant == "paper":
                total = sum(math.exp(similarity(a, c) / tau) for c in mined)
                losses.append(-math.log(math.exp(positive / tau) / total) if mined else 0.0)
            else:
                total = sum(math.exp((similarity(a, c) + margin) / tau) for c in mined)
                losses.append(-math.log(math.exp(positive / tau) / (math.exp(positive / tau) + total)))
        totals.append(mean(losses))
    return sum(totals) if variant == "paper" else sum(totals) / 2


def infonce(s: Sims, ids: list[int], tau: float, mask: bool) -> float:
    total = 0.0
    for a in range(len(ids)):
        for similarity in (lambda c, a=a: best(s, a, c), lambda c, a=a: best(s, c, a)):
            everything = sum(math.exp(similarity(c) / tau) for c in [a, *others(ids, a, mask)])
            total -= math.log(math.exp(similarity(a) / tau) / everything)
    return total / 2 / len(ids)


def sigmoid(s: Sims, ids: list[int], tau: float, bias: float, mask: bool) -> float:
    total = 0.0
    for i in range(len(ids)):
        for j in [i, *others(ids, i, mask)]:
            sign = 1 if i == j else -1
            total += math.log(1 + math.exp(-sign * (best(s, i, j) / tau + bias)))
    return total / len(ids)


def complementary(s: Sims, ids: list[int], tau: float, trusting: bool, mask: bool) -> float:
    def share(a: int, c: int, similarity: Callable[[int, int], float]) -> float:
        everything = sum(math.exp(similarity(a, other) / tau) for other in [a, *others(ids, a, mask)])
        return math.exp(similarity(a, c) / tau) / everything

    both = (lambda a, c: best(s, a, c), lambda a, c: best(s, c, a))
    total = 0.0
    for a in range(len(ids)):
        trust = 1.0 if trusting else mean([share(a, a, similarity) for similarity in both])
        for similarity in both:
            negatives = sum(math.tan(share(a, c, similarity)) for c in others(ids, a, mask))
            everything = negatives + math.tan(share(a, a, similarity))
            total -= trust * math.log(share(a, a, similarity))
            total += 5 * negatives / everything ** (1 - trust)
    return total / len(ids)

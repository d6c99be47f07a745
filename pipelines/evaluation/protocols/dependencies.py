"""Dependencies of captions resolved by their images alone (UniVSE, section 4.4).

B images, C captions, G dependencies, N candidates of all dependencies together, D embedding.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from pipelines.evaluation.protocols.inputs import EvaluationInputs
from pipelines.evaluation.protocols.results import Results
from pipelines.inference.image_inputs import image_source
from pipelines.kinds.component_embedder import ComponentEmbedder, Phrase
from pipelines.runtime.stage import StageError
from preprocessing.captions.components import nouns_of, pairs_of, triples_of
from preprocessing.captions.word_lists import WORD_LISTS
from preprocessing.captions.wordnet.taxonomy import load_taxonomy
from preprocessing.loading.loader import image_batches
from vse_core.evaluation.dependency import (
    Dependencies,
    candidate_similarities,
    evaluate_dependencies,
    find_adjectives,
    find_dependencies,
    image_contribution,
    other_images,
)

_IMAGES_AT_ONCE = 128


def dependencies(inputs: EvaluationInputs) -> Results:
    """Evaluate which noun an adjective belongs to, which colour a noun has, and what a relation relates, with controls.

    The parser's answers count as correct. A model with regions tells the noun of an adjective by the pair's best region
    ("regions"), against which it was trained; also by how much the pair's best region is above that of the noun alone
    ("relative"). Words mostly tell which noun is green; which colour the dog has, among those that the split's captions
    use `pools.min_adjectives` times, the image has to tell ("colours"). Relations, and attributes as well, are scored
    with the image's global vector ("global"): relations were trained against it, and models without regions have
    nothing else.

    Metrics, in per cent, are for each score ``dependencies/attributes_regions_accuracy``, ``.._wrong_image`` (the same
    with another image of the split in place of each) and ``.._contribution``, their difference, with ``_low`` and
    ``_high`` of its 95 % interval; and ``dependencies/attributes_chance``. ``dependencies/attributes_accuracy`` and so
    on, without the name of a score, are those by regions if there are any, else those by the global vector.
    """
    if len(inputs.captions) < 2:
        raise StageError("protocol dependencies: the split has one image; there is no other to compare it with")
    graphs = [inputs.texts.as_read(caption.graph) for captions in inputs.captions for caption in captions]
    image_of_C = torch.tensor([image for image, captions in enumerate(inputs.captions) for _ in captions])
    words: dict[str, int] = {}

    def number(word: str) -> int:
        return words.setdefault(word, len(words))

    nouns = [[number(noun) for noun in nouns_of(graph)] for graph in graphs]
    pairs = [[(number(a), number(n)) for a, n in pairs_of(graph)] for graph in graphs]
    triples = [[(number(s), number(r), number(o)) for s, r, o in triples_of(graph)] for graph in graphs]
    kinds = {
        "attributes": find_dependencies(zip(nouns, pairs, strict=True), "attributes"),
        "colours": _find_colours(pairs, image_of_C.tolist(), words, inputs.pools.min_adjectives),
        "relations": find_dependencies(zip(nouns, triples, strict=True), "relations"),
    }
    metrics: dict[str, float] = {}
    for kind, found in kinds.items():
        if len(found.caption_G):
            measured = _evaluate(inputs, found, list(words), image_of_C[found.caption_G], kind == "attributes")
            metrics |= {f"dependencies/{kind}_{name}": value for name, value in measured.items()}
    return Results("dependencies", metrics, f"dependencies: {_summary(metrics, list(kinds)) or 'none to resolve'}")


def _find_colours(
    pairs_of_C: Sequence[Sequence[tuple[int, int]]], image_of_C: Sequence[int], words: dict[str, int], fewest: int
) -> Dependencies:
    """Ask for the colours of nouns, among those that the captions use often enough."""
    uses = Counter(adjective for pairs in pairs_of_C for adjective, _ in pairs)
    colours = {words[colour]: colour for colour in WORD_LISTS["colours"] if uses[words.get(colour, -1)] >= fewest}

    def alike(one: int, other: int) -> bool:
        return load_taxonomy().same_or_kind_of(colours[one], colours[other], "adjective")

    return find_adjectives(pairs_of_C, image_of_C, list(colours), alike)


def _evaluate(
    inputs: EvaluationInputs, found: Dependencies, names: list[str], image_G: Tensor, has_nouns: bool
) -> dict[str, float]:
    """Return the metrics of all scores of one kind of dependencies, whose candidates may differ in their nouns."""
    phrases = [tuple(names[word] for word in candidate) for candidate in found.words_NW.tolist()]
    image_N = image_G.repeat_interleave(found.first_G1.diff())
    wrong = _scores(inputs, phrases, other_images(len(inputs.captions))[image_N], has_nouns)
    metrics: dict[str, float] = {"skipped": float(found.skipped)}
    # The figures of the first stand for the kind.
    for name, scores_N in reversed(_scores(inputs, phrases, image_N, has_nouns).items()):
        result = evaluate_dependencies(scores_N, found.first_G1, found.correct_N)
        with_wrong = evaluate_dependencies(wrong[name], found.first_G1, found.correct_N)
        gain, interval = image_contribution(scores_N, wrong[name], found.first_G1, found.correct_N, image_G)
        measured = {
            "accuracy": result.accuracy,
            "wrong_image": with_wrong.accuracy,
            "contribution": gain,
            "contribution_low": interval.low,
            "contribution_high": interval.high,
            "ties": float(result.ties),
        }
        metrics |= measured | {f"{name}_{key}": value for key, value in measured.items()}
        metrics |= {"chance": result.chance, "dependencies": float(result.dependencies)}
    return metrics


def _scores(inputs: EvaluationInputs, phrases: Sequence[Phrase], image_N: Tensor, has_nouns: bool) -> dict[str, Tensor]:
    """Return the similarities (N,) of candidates with these images (N,), by the name of the score."""
    candidates_ND = _embedded(inputs, phrases)
    scores = {"global": candidate_similarities(inputs.gallery.images_BKD, candidates_ND, image_N)}
    embedder = inputs.texts.components
    if embedder is None or len(phrases[0]) != 2:
        return scores
    if not has_nouns:
        return {"regions": _best_regions(inputs, embedder, candidates_ND, image_N), **scores}
    nouns_ND = _embedded(inputs, [(noun,) for _, noun in phrases])
    best = _best_regions(inputs, embedder, torch.cat([candidates_ND, nouns_ND]), image_N.repeat(2))
    pairs_N, nouns_N = best.chunk(2)
    return {"regions": pairs_N, **scores, "relative": pairs_N - nouns_N}


def _embedded(inputs: EvaluationInputs, phrases: Sequence[Phrase]) -> Tensor:
    """Embed each different phrase once: (N, D)."""
    rows = {phrase: row for row, phrase in enumerate(dict.fromkeys(phrases))}
    return inputs.texts.embed_phrases(list(rows))[[rows[phrase] for phrase in phrases]]


def _best_regions(inputs: EvaluationInputs, embedder: ComponentEmbedder, vectors_ND: Tensor, image_N: Tensor) -> Tensor:
    """Return the similarities (N,) of vectors (N, D) with the best regions of their images (N,)."""
    scores_N = torch.empty(len(vectors_ND))
    first = 0
    source, images = image_source(inputs.texts.model, inputs.reader), range(len(inputs.captions))
    for features_BNF, lengths_B in image_batches(source, _IMAGES_AT_ONCE, images):
        regions_BND, mask_BN = embedder.embed_all_regions(features_BNF, lengths_B)
        of_batch_N = (image_N >= first) & (image_N < first + len(regions_BND))
        if of_batch_N.any():
            images_n = image_N[of_batch_N] - first
            scores_N[of_batch_N] = candidate_similarities(regions_BND, vectors_ND[of_batch_N], images_n, mask_BN)
        first += len(regions_BND)
    return scores_N


def _summary(metrics: dict[str, float], kinds: Sequence[str]) -> str:
    parts = []
    for kind in kinds:
        prefix = f"dependencies/{kind}_"
        if f"{prefix}accuracy" in metrics:
            accuracy, wrong, chance = (metrics[prefix + name] for name in ("accuracy", "wrong_image", "chance"))
            parts.append(f"{kind} {accuracy:.1f} % (with a wrong image {wrong:.1f}, chance {chance:.1f})")
    return ", ".join(parts)

"""Precision and recall of parsed captions against components annotated by hand.

The annotation (assets/components_gold.jsonl) holds 60 captions drawn at random from the dev split of Flickr8k, by their
ids. A word "a|b" may be either; a component whose first word begins with "?" may be found or not: neither counts.
components_gold_development.jsonl holds 75 more, of Flickr8k's train split and of COCO, to improve the rules with; its
first lines, which begin with "#", give the conventions. components_gold_heldout.jsonl holds the other 75 of that draw,
to measure the rules with: no rule is changed for one of its captions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from preprocessing.captions.graph import SceneGraph

GOLD = Path(__file__).with_name("assets") / "components_gold.jsonl"
DEVELOPMENT = GOLD.with_name("components_gold_development.jsonl")
HELD_OUT = GOLD.with_name("components_gold_heldout.jsonl")
KINDS = ("objects", "attributes", "relations")

# One place of a component: the forms that are as good as each other.
Words = Sequence[str]


@dataclass
class Score:
    """Components found and annotated, of one kind.

    Attributes:
        right: found and annotated.
        wrong: found only, each with its caption's id.
        missed: annotated only, each with its caption's id.
    """

    right: int = 0
    wrong: list[tuple[str, str]] = field(default_factory=list)
    missed: list[tuple[str, str]] = field(default_factory=list)

    @property
    def annotated(self) -> int:
        """Return the number of components in the gold."""
        return self.right + len(self.missed)

    @property
    def precision(self) -> float:
        return self.right / max(1, self.right + len(self.wrong))

    @property
    def recall(self) -> float:
        return self.right / max(1, self.annotated)

    @property
    def f1(self) -> float:
        """Return the harmonic mean of precision and recall."""
        return 2 * self.right / max(1, 2 * self.right + len(self.wrong) + len(self.missed))


def read_captions(data: Path) -> dict[str, str]:
    """Caption id -> text, of Flickr8k and coco_mini."""
    lines = (data / "flickr8k" / "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines()
    coco = json.loads((data / "coco_mini" / "annotations" / "captions_train2017.json").read_text(encoding="utf-8"))
    texts = dict(line.split("\t") for line in lines)
    return texts | {str(entry["id"]): entry["caption"] for entry in coco["annotations"]}


def read_gold(path: Path = GOLD) -> dict[str, dict[str, list[list[str]]]]:
    """Caption id -> kind -> components, each a list of words."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {
        line["caption_id"]: {kind: [[item] if isinstance(item, str) else item for item in line[kind]] for kind in KINDS}
        for line in lines
    }


def found_components(graph: SceneGraph) -> dict[str, list[list[Words]]]:
    """The components of a graph, in the annotation's order of words."""
    nouns = [(thing.lemma, thing.word) for thing in graph.objects]
    return {
        "objects": [[noun] for noun in nouns],
        "attributes": [
            [(attribute.lemma, attribute.word), noun]
            for thing, noun in zip(graph.objects, nouns, strict=True)
            for attribute in thing.attributes
        ],
        "relations": [[nouns[r.subject], (r.lemma, r.words), nouns[r.object]] for r in graph.relations],
    }


def score(parsed: Iterable[tuple[str, SceneGraph]], path: Path = GOLD) -> dict[str, Score]:
    """Compare graphs of annotated captions, given with their ids, with the annotation."""
    gold = read_gold(path)
    scores = {kind: Score() for kind in KINDS}
    for caption_id, graph in parsed:
        for kind, components in found_components(graph).items():
            _compare(caption_id, components, gold[caption_id][kind], scores[kind])
    return scores


def _compare(caption_id: str, found: list[list[Words]], annotated: list[list[str]], score: Score) -> None:
    # What must be found takes its matches first; what may be found takes what is left.
    required = [words for words in annotated if not words[0].startswith("?")]
    optional = [[words[0][1:], *words[1:]] for words in annotated if words[0].startswith("?")]
    left = list(found)
    for words in required:
        match = next((component for component in left if _matches(component, words)), None)
        if match is None:
            score.missed.append((caption_id, " ".join(words)))
        else:
            left.remove(match)
            score.right += 1
    for component in left:
        if not any(_matches(component, words) for words in optional):
            score.wrong.append((caption_id, " ".join(forms[0] for forms in component)))


def _matches(component: list[Words], words: list[str]) -> bool:
    return all(set(forms) & set(word.split("|")) for forms, word in zip(component, words, strict=True))

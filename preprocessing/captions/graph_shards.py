"""Shards of scene graphs, made from the captions of feature shards under the same keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel

from preprocessing.captions.adversarial.sentence import TokenizedCaption
from preprocessing.captions.graph import SceneGraph
from preprocessing.captions.scene_graph.parse import ParsedCaption, parse_captions
from preprocessing.reading import damage_as
from preprocessing.shards.index import FIX, ShardError
from preprocessing.shards.reader import read_records
from preprocessing.shards.split_index import shard_paths
from preprocessing.shards.writer import Sample, write_shard
from preprocessing.storage.atomic import write_json_atomic

if TYPE_CHECKING:
    from spacy.language import Language


# Part of every fingerprint: raise it when the same captions and pipeline would give other bytes.
FORMAT = 5


class ParseSpec(NamedTuple):
    """A shard to be made at `path`, of the captions of a shard of `features`."""

    path: Path
    features: Path
    fingerprint: str


def counts_path(shard: Path) -> Path:
    """Return the path of a shard's counts."""
    return shard.with_name(shard.name.replace("shard-", "counts-")).with_suffix(".json")


def read_counts(shard: Path) -> GraphCounts:
    """Read the counts of a shard that :func:`parse_shard` has made; raise ShardError if they are damaged."""
    path = counts_path(shard)
    with damage_as(ShardError, f"the counts {path} cannot be read", FIX):
        return GraphCounts.model_validate_json(path.read_bytes())


def parse_shard(spec: ParseSpec, nlp: Language, batch_size: int) -> GraphCounts:
    """Make one shard: a record of the same key for each image, with a file of counts next to it.

    A caption's record has its tokens, as written and with the blanks behind them, and its graph, whose places count
    these tokens. One that gives no graph, or a part of one, keeps its place with the reason under ``problem``. The
    pipeline works on `batch_size` captions at once. A damaged feature shard is a ShardError.
    """
    # The counts of an earlier attempt go first: they must never lie next to a shard that they do not describe.
    counts_path(spec.path).unlink(missing_ok=True)
    records = list(read_records(spec.features))
    texts = (caption["text"] for _, record in records for caption in record["captions"])
    parsed, counts = parse_captions(nlp, texts, batch_size), GraphCounts()

    def samples() -> Iterator[Sample]:
        """Yield records with their graphs, one at a time: each garbage collection would visit graphs that stay."""
        for key, record in records:
            captions = []
            for caption, said in zip(record["captions"], parsed, strict=False):
                counts.add(said)
                graph = said.graph._asdict()
                captions.append({**caption, "tokens": said.tokens, "graph": graph, "problem": said.problem})
            yield Sample(key, {}, {**record, "captions": captions})

    write_shard(spec.path, samples(), spec.fingerprint)
    write_json_atomic(counts_path(spec.path), counts.model_dump())
    return counts


def read_captions(directory: Path) -> Iterator[list[TokenizedCaption]]:
    """Yield the parsed captions of a split, image by image; raise ShardError if a shard is missing or damaged."""
    for path in shard_paths(directory):
        with damage_as(ShardError, f"shard {path} holds no graphs", FIX):
            for _, record in read_records(path):
                yield [
                    TokenizedCaption(
                        record["image_id"],
                        caption["caption_id"],
                        tuple(caption["tokens"]),
                        SceneGraph.from_json(caption["graph"]),
                    )
                    for caption in record["captions"]
                ]


class GraphCounts(BaseModel):
    """Counts of lemmas over the graphs of captions ("attribute object" of attributes); those of parts can be merged.

    `without` counts captions without objects, without attributes and without relations, by these words, `problems` the
    reasons why a graph is empty or partial.
    """

    captions: int = 0
    without: Counter[str] = Counter()
    problems: Counter[str] = Counter()
    objects: Counter[str] = Counter()
    attributes: Counter[str] = Counter()
    relations: Counter[str] = Counter()

    def add(self, caption: ParsedCaption) -> None:
        """Count what a caption says."""
        self.captions += 1
        if caption.problem is not None:
            self.problems[caption.problem] += 1
        things = caption.graph.objects
        found = {
            "objects": [thing.lemma for thing in things],
            "attributes": [f"{a.lemma} {thing.lemma}" for thing in things for a in thing.attributes],
            "relations": [relation.lemma for relation in caption.graph.relations],
        }
        for kind, lemmas in found.items():
            self.without[kind] += not lemmas
            counter = getattr(self, kind)
            for lemma in lemmas:  # too few for Counter.update, which first asks what it is given
                counter[lemma] += 1

    def merge(self, other: GraphCounts) -> None:
        """Add the counts of other captions."""
        self.captions += other.captions
        for name in ("without", "problems", "objects", "attributes", "relations"):
            getattr(self, name).update(getattr(other, name))

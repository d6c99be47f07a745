"""From the captions of a feature shard to a shard of scene graphs under the same keys.

Nothing here knows about processes: the caller may make the shards one after another or on many machines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preprocessing.captions.adversarial.sentence import TokenizedCaption
from preprocessing.captions.counts import GraphCounts
from preprocessing.captions.graph import SceneGraph
from preprocessing.captions.scene_graph import parse_captions
from preprocessing.shards.reader import read_records, shard_paths
from preprocessing.shards.writer import Sample, write_shard
from preprocessing.storage.atomic import write_json_atomic

if TYPE_CHECKING:
    from spacy.language import Language

# Part of every fingerprint: raise it when the same captions and pipeline would give other bytes.
FORMAT = 1


@dataclass(frozen=True, slots=True)
class ParseSpec:
    """A shard to be made.

    Attributes:
        path: of the tar, in a directory that exists.
        features: the feature shard whose captions it holds.
        fingerprint: of the captions, the pipeline and the rules.
    """

    path: Path
    features: Path
    fingerprint: str


def counts_path(shard: Path) -> Path:
    """Where the counts of a shard are kept."""
    return shard.with_name(shard.name.replace("shard-", "counts-")).with_suffix(".json")


def read_counts(shard: Path) -> GraphCounts:
    """The counts of a shard that :func:`parse_shard` has made."""
    return GraphCounts.from_json(json.loads(counts_path(shard).read_text(encoding="utf-8")))


def parse_shard(spec: ParseSpec, nlp: Language, batch_size: int) -> GraphCounts:
    """Make one shard: a record of the same key for each image, and the counts beside it.

    A caption's record has its tokens in lower case and its graph, whose places count these tokens.
    A caption that gives no graph, or a part of one, keeps its place with the reason under ``problem``.

    Args:
        spec: what goes into the shard.
        nlp: the pipeline (:func:`~preprocessing.captions.load_pipeline`).
        batch_size: captions that the pipeline works on at once.

    Raises:
        ShardError: the feature shard is damaged.
        OSError: the shard cannot be written.
    """
    counts = GraphCounts()
    # The counts of an earlier attempt go first: they must never stand beside a shard they do not describe.
    counts_path(spec.path).unlink(missing_ok=True)
    write_shard(spec.path, _samples(spec, nlp, batch_size, counts), spec.fingerprint)
    write_json_atomic(counts_path(spec.path), counts.to_json())
    return counts


def read_captions(directory: Path) -> Iterator[list[TokenizedCaption]]:
    """The parsed captions of a split, image by image, with the tokens that their graphs refer to.

    Raises:
        ShardError: a shard is missing or damaged.
    """
    for path in shard_paths(directory):
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


def read_graphs(shard: Path) -> Iterator[tuple[str, list[tuple[str, SceneGraph]]]]:
    """Read a shard of graphs: for each image its id, and its captions' ids with their graphs.

    Raises:
        ShardError: the shard is damaged.
    """
    for _, record in read_records(shard):
        captions = [(caption["caption_id"], SceneGraph.from_json(caption["graph"])) for caption in record["captions"]]
        yield record["image_id"], captions


def _samples(spec: ParseSpec, nlp: Language, batch_size: int, counts: GraphCounts) -> Iterator[Sample]:
    records = list(read_records(spec.features))
    texts = (caption["text"] for _, record in records for caption in record["captions"])
    parsed = parse_captions(nlp, texts, batch_size)
    for key, record in records:
        captions: list[dict[str, Any]] = []
        for caption in record["captions"]:
            result = next(parsed)
            counts.add(result.graph, result.problem)
            graph = result.graph.to_json()
            captions.append({**caption, "tokens": result.tokens, "graph": graph, "problem": result.problem})
        yield Sample(key, {}, {**record, "captions": captions})

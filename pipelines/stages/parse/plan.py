"""Stage 2, parse, without its work: the shards of graphs, as they should be and as they are there."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from pipelines.config import ConfigError, PipelineConfig
from pipelines.runtime.stage import Plans, ShardSet, StageDir, StagePlan, content_digest, fingerprint
from pipelines.stages.extract.shards import missing_shards, shard_plan
from pipelines.stages.stage import Stage
from preprocessing.captions import graph_shards
from preprocessing.captions.english import SHIPPED
from preprocessing.captions.graph_shards import GraphCounts

NAME = "parse"


def plan(config: PipelineConfig, upstream: Plans) -> StagePlan:
    """Find the shards of graphs, `outputs` by split, that are there; ConfigError if the spaCy pipeline is not found."""
    splits = splits_of(config, upstream)
    graphs = {split.name: split.graphs for split in splits}
    captions = sum(each.captions for each in graphs.values())
    to_make = f"{captions:,} captions" if captions else "all captions of the archives"
    return shard_plan(NAME, config.work_dir, graphs, lambda: _made(splits), to_make, graph_shards.counts_path)


@dataclass(frozen=True)
class Split:
    """A split and its shards of graphs."""

    name: str
    features: ShardSet
    graphs: ShardSet

    def missing(self) -> list[Path]:
        """Return the shards of graphs that are not complete, neither here nor on the storage."""
        return missing_shards(self.graphs.directory, self.graphs.paths, graph_shards.counts_path)

    def specs(self, shards: Iterable[Path]) -> Iterator[graph_shards.ParseSpec]:
        """Yield shards to make with the feature shards they are made from."""
        self.graphs.directory.create()
        for path in shards:
            yield graph_shards.ParseSpec(path, self.features.directory.path / path.name, self.graphs.fingerprint)


def _made(splits: list[Split]) -> str:
    counts = GraphCounts()
    for split in splits:
        counts.merge(GraphCounts.model_validate(split.graphs.directory.read_manifest()["counts"]))
    return in_words(counts)


def in_words(counts: GraphCounts) -> str:
    """Return one line for the final table."""
    return (
        f"{counts.captions:,} captions: {counts.objects.total():,} objects, {counts.attributes.total():,} attributes, "
        f"{counts.relations.total():,} relations; {counts.without['objects']:,} captions without any"
    )


def splits_of(config: PipelineConfig, upstream: Plans) -> list[Split]:
    """Return the splits to parse, each with the fingerprint of its features, the spaCy pipeline and the rules."""
    settings = settings_of(config)
    splits = []
    for name, features in upstream["extract"].shards.items():
        identity = fingerprint({**settings, "features": features.fingerprint})
        directory = StageDir(config.work_dir, f"{NAME}/{name}", identity, config.mirror)
        paths = tuple(directory.path / path.name for path in features.paths)
        splits.append(Split(name, features, replace(features, directory=directory, paths=paths, fingerprint=identity)))
    return splits


def settings_of(config: PipelineConfig) -> dict[str, Any]:
    """Return what decides the graphs besides the captions."""
    return {"format": graph_shards.FORMAT, "pipeline": _identity(config.parsing.pipeline)}


def _identity(pipeline: str | None) -> dict[str, str]:
    """Return the identity of a spaCy pipeline; without importing spaCy, as planning has to be quick."""
    folder, spacy = Path(pipeline or SHIPPED), metadata.version("spacy")
    if folder.is_dir():
        # spaCy's weights and rules are in files whose names have no ending.
        files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
        digests = [[str(file.relative_to(folder)), content_digest(file)] for file in files]
        return {"files": fingerprint(digests), "spacy": spacy}
    try:
        return {"package": str(pipeline), "version": metadata.version(str(pipeline)), "spacy": spacy}
    except metadata.PackageNotFoundError:
        raise ConfigError(
            f"parsing.pipeline: there is no spaCy pipeline {pipeline!r}, neither installed nor as a folder; correct "
            "the name, or leave it out for the one that ships"
        ) from None


def _check_cluster(config: PipelineConfig) -> None:
    from pipelines.training.capacity import require_room_for_actor

    require_room_for_actor("parsing", config.parsing.cpus_per_actor)


PARSE = Stage(NAME, plan, "pipelines.stages.parse.run", needs="graphs", check_cluster=_check_cluster)

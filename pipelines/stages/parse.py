"""Stage 2, parse: the captions in the feature shards become objects, attributes and relations.

Each split has its own directory, `<work_dir>/parse/<split>/<fingerprint>/`, with a shard of graphs for each feature
shard, under the same keys. The pipeline runs this stage where the model or a protocol needs the graphs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.config import ConfigError, PipelineConfig
from pipelines.runtime import cluster
from pipelines.runtime.stage import (
    Plans,
    ShardSet,
    StageDir,
    StagePlan,
    StageReport,
    content_digest,
    disk_errors,
    fingerprint,
)
from pipelines.stages.shard_reuse import Version, reuse_shards
from pipelines.stages.shard_work import missing_shards, shard_files, shard_plan, track_progress
from pipelines.tracking import Tracker
from preprocessing.captions import graph_shards, load_pipeline
from preprocessing.captions.graph_shards import GraphCounts
from preprocessing.captions.pipeline import SHIPPED
from preprocessing.shards import read_index
from preprocessing.storage import Mirror
from preprocessing.storage.mirror import sidecar_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "parse"
# Rows of the tables of the commonest words; a plot shows the first of them.
_COMMONEST, _PLOTTED = 200, 20
_COLOURS = ("blue", "vermillion", "green")


def plan(config: PipelineConfig, upstream: Plans) -> StagePlan:
    """Find the shards of graphs that are there; `outputs` maps each split to its directory of shards.

    Raises ConfigError if there is no such spaCy pipeline.
    """
    splits = _splits(config, upstream)
    graphs = {split.name: split.graphs for split in splits}
    captions = sum(each.captions for each in graphs.values())
    to_make = f"{captions:,} captions" if captions else "all captions of the archives"
    return shard_plan(NAME, config.work_dir, graphs, lambda: _made(splits), to_make, graph_shards.counts_path)


def run(config: PipelineConfig, upstream: Plans, tracker: Tracker) -> StageReport:
    """Make the missing shards on a pool of Ray actors, then write each split's manifest and log its counts.

    Raises StageError if several actors died of the same shard, or a feature shard is missing, and ClusterError where
    Ray cannot be reached.
    """
    splits = _splits(config, upstream)
    tracker.log_params({"parsing": config.parsing.model_dump(mode="json")})
    tracker.log_params({f"fingerprint.{split.name}": split.directory.fingerprint for split in splits})
    reused = [reuse_shards(split.graphs, _version(config, split), graph_shards.counts_path) for split in splits]
    if any(split.missing() for split in splits):
        _make_shards(config, splits, tracker)
    for split, count in zip(splits, reused, strict=True):
        shards = {"shards": len(split.graphs.paths), "shards_taken_over": count}
        split.directory.pull(lambda name: not name.endswith(".tar"))
        content = {"split": split.name, "counts": _counts([split]).to_json(), **shards}
        files = [file.name for path in split.graphs.paths for file in shard_files(path, graph_shards.counts_path)]
        split.directory.complete(content, files, pushed=True)
        _log(split, tracker)
    return StageReport(NAME, config.work_dir / NAME, _summary(_counts(splits)))


@dataclass(frozen=True)
class _Split:
    """A split and its shards of graphs."""

    name: str
    features: ShardSet
    graphs: ShardSet

    @property
    def directory(self) -> StageDir:
        """The folder of the graphs."""
        return self.graphs.directory

    def missing(self) -> list[Path]:
        """Return the shards of graphs that are not complete, neither here nor on the storage."""
        return missing_shards(self.directory, self.graphs.paths, graph_shards.counts_path)

    def missing_specs(self) -> Iterator[graph_shards.ParseSpec]:
        """Yield the missing shards with the feature shards they are made from."""
        self.directory.create()
        for path in self.missing():
            yield graph_shards.ParseSpec(path, self.features.directory.path / path.name, self.directory.fingerprint)


class _Parsing:
    """Actor that holds the spaCy pipeline and makes one shard at a time."""

    def __init__(self, pipeline: str | None, batch_size: int, mirror: Mirror) -> None:
        self._name, self._batch_size = pipeline, batch_size
        self._mirror = mirror

    def prepare(self) -> None:
        """Load the pipeline, once for all shards."""
        self._nlp = load_pipeline(self._name)

    def work(self, spec: graph_shards.ParseSpec) -> int:
        """Make a shard; return its number of captions."""
        spec.path.parent.mkdir(parents=True, exist_ok=True)
        with self._mirror.pinned_shard(spec.features):
            captions = graph_shards.parse_shard(spec, self._nlp, self._batch_size).captions
        self._mirror.push(spec.path, graph_shards.counts_path(spec.path), sidecar_path(spec.path))
        self._mirror.make_room()
        return captions


def _make_shards(config: PipelineConfig, splits: list[_Split], tracker: Tracker) -> None:
    cluster.connect(config.ray.address)
    import ray

    from pipelines.runtime.actor_pool import map_unordered

    settings = config.parsing
    actor = ray.remote(_Parsing).options(num_cpus=settings.cpus_per_actor)
    missing = sum(len(split.missing()) for split in splits)
    done = map_unordered(
        start=lambda: actor.remote(settings.pipeline, settings.batch_size, config.mirror),
        actors=min(settings.actors, missing),
        items=chain.from_iterable(split.missing_specs() for split in splits),
        describe=lambda spec: f"shard {spec.path}",
    )
    with disk_errors(NAME, config.work_dir):
        track_progress(done, sum(split.graphs.captions for split in splits), NAME, "captions", tracker)


def _counts(splits: list[_Split]) -> GraphCounts:
    """Return the counts of several splits together."""
    for split in splits:
        split.directory.pull(lambda name: name.startswith("counts-"))
    counts = GraphCounts()
    for path in chain.from_iterable(split.graphs.paths for split in splits):
        counts.merge(graph_shards.read_counts(path))
    return counts


def _made(splits: list[_Split]) -> str:
    """Return one line about complete splits, by their manifests."""
    counts = GraphCounts()
    for split in splits:
        counts.merge(GraphCounts.from_json(split.directory.read_manifest()["counts"]))
    return _summary(counts)


def _summary(counts: GraphCounts) -> str:
    """Return one line for the final table."""
    return (
        f"{counts.captions:,} captions: {counts.objects.total():,} objects, {counts.attributes.total():,} attributes, "
        f"{counts.relations.total():,} relations; {counts.without['objects']:,} captions without any"
    )


def _log(split: _Split, tracker: Tracker) -> None:
    """Log the counts of a split: metrics, the commonest words as a table and as a plot."""
    counts = _counts([split])
    kinds = {"objects": counts.objects, "attributes": counts.attributes, "relations": counts.relations}
    figures: dict[str, float] = {"captions": counts.captions, "problems": counts.problems.total()}
    for kind, words in kinds.items():
        figures |= {
            kind: words.total(),
            f"different_{kind}": len(words),
            f"share_without_{kind}": counts.without[kind] / max(1, counts.captions),
        }
    tracker.log_metrics({f"{NAME}/{split.name}/{name}": float(value) for name, value in figures.items()})
    tracker.log_dict(
        {"problems": dict(counts.problems), **{kind: words.most_common(_COMMONEST) for kind, words in kinds.items()}},
        f"parse/{split.name}/commonest.json",
    )
    commonest = {kind: words.most_common(_PLOTTED) for kind, words in kinds.items()}
    tracker.log_figure(_plot_commonest(commonest, counts.captions, split.name), f"plots/{split.name}_components.png")


def _plot_commonest(commonest: Mapping[str, Sequence[tuple[str, int]]], captions: int, split: str) -> Figure:
    """Plot the share of captions with each of the commonest words, one panel of bars for each kind of component."""
    from matplotlib.figure import Figure

    from vse_core.evaluation.plots import OKABE_ITO

    rows = max(1, *(len(words) for words in commonest.values()))
    figure = Figure(figsize=(4.2 * len(commonest), 1.2 + 0.22 * rows), layout="constrained", dpi=120)
    figure.suptitle(f"What {captions:,} captions of {split} talk about")
    panels = figure.subplots(1, len(commonest), squeeze=False)[0]
    for axes, (kind, words), colour in zip(panels, commonest.items(), _COLOURS, strict=True):
        axes.barh(range(len(words)), [100 * count / max(1, captions) for _, count in words], color=OKABE_ITO[colour])
        axes.set_yticks(range(len(words)), [word for word, _ in words])
        axes.invert_yaxis()
        axes.set_xlabel("per 100 captions")
        axes.set_title(kind)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _splits(config: PipelineConfig, upstream: Plans) -> list[_Split]:
    """Return the splits to parse, each with the fingerprint of its features, the spaCy pipeline and the rules."""
    settings = _settings(config)
    splits = []
    for name, features in upstream["extract"].shards.items():
        identity = fingerprint({**settings, "features": features.fingerprint})
        directory = StageDir(config.work_dir, f"{NAME}/{name}", identity, config.mirror)
        paths = tuple(directory.path / path.name for path in features.paths)
        splits.append(_Split(name, features, replace(features, directory=directory, paths=paths, fingerprint=identity)))
    return splits


def _settings(config: PipelineConfig) -> dict[str, Any]:
    """Return what decides the graphs besides the captions."""
    return {"format": graph_shards.FORMAT, "pipeline": _identity(config.parsing.pipeline)}


def _version(config: PipelineConfig, split: _Split) -> Version:
    """Return the identity of each shard: its captions are those in the feature shard, without skipped images."""
    settings = _settings(config)
    split.features.directory.pull(lambda name: name.endswith(".json"))
    contents = {
        path.name: fingerprint({**settings, "features": read_index(split.features.directory.path / path.name).sha256})
        for path in split.graphs.paths
    }
    return Version(fingerprint(settings), contents)


def _identity(pipeline: str | None) -> dict[str, str]:
    """Return the identity of a spaCy pipeline; without importing spaCy, as planning has to be quick."""
    folder = SHIPPED if pipeline is None else Path(pipeline)
    if folder.is_dir():
        files = [[str(file.relative_to(folder)), content_digest(file)] for file in sorted(folder.rglob("*.*"))]
        return {"files": fingerprint(files), "spacy": metadata.version("spacy")}
    try:
        return {
            "package": str(pipeline),
            "version": metadata.version(str(pipeline)),
            "spacy": metadata.version("spacy"),
        }
    except metadata.PackageNotFoundError:
        raise ConfigError(
            f"parsing.pipeline: there is no spaCy pipeline {pipeline!r}, neither installed nor as a folder; install it "
            "(python -m spacy download NAME), correct the name, or leave it out for the one that ships"
        ) from None

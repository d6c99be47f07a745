"""Stage 2, parse: the captions beside the features become objects, attributes and relations.

Each split has its own directory, `<work_dir>/parse/<split>/<fingerprint>/`, with a shard of graphs for each feature
shard, under the same keys. The main job runs this stage where the model or a protocol reads its output.

python pipelines/parse.py --config pipelines/config/data/flickr8k_univse.yaml
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.config import ConfigError, PipelineConfig
from pipelines.runtime.stage import StageDir, StagePlan, StageReport, content_digest, fingerprint, unwritten
from pipelines.stages import extract
from pipelines.stages.shard_reuse import Version, take_over
from pipelines.stages.shard_work import follow, is_whole, shard_plan
from preprocessing import extraction
from preprocessing.captions import graph_shards
from preprocessing.captions.counts import GraphCounts
from preprocessing.captions.pipeline import SHIPPED
from preprocessing.shards import read_index
from preprocessing.storage import Mirror
from preprocessing.storage.mirror import sidecar_path

if TYPE_CHECKING:
    from pipelines.tracking import Tracker

NAME = "parse"
# Rows of the tables of the commonest words; a plot shows the first of them.
_COMMONEST, _PLOTTED = 200, 20


def plan(config: PipelineConfig) -> StagePlan:
    """Look at which shards of graphs are there; `outputs` maps each split to its directory of shards.

    Raises:
        ConfigError: the pipeline is not there.
    """
    splits = _splits(config)
    captions = sum(split.captions for split in splits)
    return shard_plan(NAME, config.work_dir, splits, lambda: _summary(_counts(splits)), f"{captions:,} captions")


def run(config: PipelineConfig, tracker: Tracker) -> StageReport:
    """Parse what is missing on a pool of Ray actors, then write each split's manifest and log what was found.

    Raises:
        StageError: a shard has cost several actors their lives, or a feature shard is missing.
        ClusterError: Ray cannot be reached.
    """
    splits = _splits(config)
    tracker.log_params({"parsing": config.parsing.model_dump(mode="json")})
    tracker.log_params({f"fingerprint.{split.name}": split.directory.fingerprint for split in splits})
    taken_over = [take_over(split, _version(config, split), graph_shards.counts_path) for split in splits]
    if any(split.missing() for split in splits):
        _make_shards(config, splits, tracker)
    for split, taken in zip(splits, taken_over, strict=True):
        shards = {"shards": len(split.shards), "shards_taken_over": taken}
        split.directory.complete({"split": split.name, "counts": _counts([split]).to_json(), **shards})
        _log(split, tracker)
    return StageReport(NAME, config.work_dir / NAME, _summary(_counts(splits)))


@dataclass(frozen=True)
class _Split:
    """A split on its way from feature shards into shards of graphs."""

    name: str
    captions: int
    directory: StageDir
    shards: tuple[Path, ...]
    features: StageDir

    @property
    def fingerprint(self) -> str:
        """Identity of the graphs."""
        return self.directory.fingerprint

    def missing(self) -> list[Path]:
        """Shards that are not there as a whole, here or on the storage."""
        stored = self.directory.stored()
        return [path for path in self.shards if not (self._is_here(path) or _names(path) <= stored)]

    def _is_here(self, path: Path) -> bool:
        return is_whole(path, self.directory.fingerprint) and graph_shards.counts_path(path).is_file()

    def missing_specs(self) -> Iterator[graph_shards.ParseSpec]:
        """What the missing shards are made from."""
        self.directory.create()
        for path in self.missing():
            yield graph_shards.ParseSpec(path, self.features.path / path.name, self.directory.fingerprint)


class _Parsing:
    """The actor: holds the pipeline and makes one shard at a time."""

    def __init__(self, pipeline: str | None, batch_size: int, mirror: Mirror) -> None:
        self._name, self._batch_size = pipeline, batch_size
        self._mirror = mirror

    def prepare(self) -> None:
        """Load the pipeline, once for all shards."""
        from preprocessing.captions import load_pipeline

        self._nlp = load_pipeline(self._name)

    def work(self, spec: graph_shards.ParseSpec) -> int:
        """Make a shard; return the number of captions in it."""
        spec.path.parent.mkdir(parents=True, exist_ok=True)
        with self._mirror.pinned_shard(spec.features):
            captions = graph_shards.parse_shard(spec, self._nlp, self._batch_size).captions
        self._mirror.push(spec.path, graph_shards.counts_path(spec.path), sidecar_path(spec.path))
        self._mirror.make_room()
        return captions


def _names(shard: Path) -> set[str]:
    """The names of a shard's files."""
    return {path.name for path in (shard, graph_shards.counts_path(shard), sidecar_path(shard))}


def _make_shards(config: PipelineConfig, splits: list[_Split], tracker: Tracker) -> None:
    from pipelines.runtime import cluster

    cluster.connect(config)
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
    try:
        follow(done, sum(split.captions for split in splits), NAME, "captions", tracker)
    except OSError as error:
        raise unwritten(NAME, config.work_dir, error) from error


def _counts(splits: list[_Split]) -> GraphCounts:
    """The counts of whole splits together."""
    for split in splits:
        split.directory.pull(lambda name: name.startswith("counts-"))
    counts = GraphCounts()
    for path in chain.from_iterable(split.shards for split in splits):
        counts.merge(graph_shards.read_counts(path))
    return counts


def _summary(counts: GraphCounts) -> str:
    """One line for the final table."""
    return (
        f"{counts.captions:,} captions: {counts.objects.total():,} objects, {counts.attributes.total():,} attributes, "
        f"{counts.relations.total():,} relations; {counts.without['objects']:,} captions without any"
    )


def _log(split: _Split, tracker: Tracker) -> None:
    """Log the counts of a split: figures, the commonest words as a table and as a plot."""
    from pipelines.stages.component_plot import plot_commonest

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
    tracker.log_figure(plot_commonest(commonest, counts.captions, split.name), f"plots/{split.name}_components.png")


def _splits(config: PipelineConfig) -> list[_Split]:
    """Return the splits to parse, each with the fingerprint of its features' records, the pipeline and the rules."""
    settings = _settings(config)
    return [
        _Split(
            split.name,
            split.summary.captions,
            directory := StageDir(
                config.work_dir,
                f"{NAME}/{split.name}",
                fingerprint({**settings, "features": split.fingerprint}),
                config.mirror,
            ),
            tuple(extraction.shard_paths(directory.path, split.summary.images, split.shard_size)),
            split.directory,
        )
        for split in extract.splits_of(config)
    ]


def _settings(config: PipelineConfig) -> dict[str, Any]:
    """What decides the graphs besides the captions."""
    return {"format": graph_shards.FORMAT, "pipeline": _identity(config.parsing.pipeline)}


def _version(config: PipelineConfig, split: _Split) -> Version:
    """What decides each shard of graphs: the captions in the feature shard, where those of images set aside are not."""
    settings = _settings(config)
    split.features.pull(lambda name: name.endswith(".json"))
    contents = {
        path.name: fingerprint({**settings, "features": read_index(split.features.path / path.name).sha256})
        for path in split.shards
    }
    return Version(fingerprint(settings), contents)


def _identity(pipeline: str | None) -> dict[str, str]:
    """What decides the graphs besides captions and rules; without importing spaCy, as planning has to be quick."""
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

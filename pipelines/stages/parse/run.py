"""The work of stage 2, parse: the captions in the feature shards become objects, attributes and relations."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import ray

from pipelines.config import PipelineConfig
from pipelines.runtime import cluster
from pipelines.runtime.actor_pool import ActorPool
from pipelines.runtime.logs import configure_worker
from pipelines.runtime.stage import Plans, StageReport, disk_errors, fingerprint
from pipelines.stages.extract.shards import Version, reuse_shards, shard_files, track_progress
from pipelines.stages.parse.plan import NAME, Split, in_words, settings_of, splits_of
from pipelines.tracking import Tracker
from preprocessing.captions import graph_shards
from preprocessing.captions.graph_shards import GraphCounts
from preprocessing.captions.pipeline import load_pipeline
from preprocessing.shards.index import read_index
from preprocessing.storage.mirror import Mirror, sidecar_path

# Rows of the tables of the commonest words.
_COMMONEST = 200


def run(config: PipelineConfig, upstream: Plans, tracker: Tracker) -> StageReport:
    """Make the missing shards on a pool of Ray actors, then write each split's manifest and log its counts.

    Raises StageError if several actors died of the same shard, or a feature shard is missing, and ClusterError if
    Ray cannot be reached.
    """
    splits = splits_of(config, upstream)
    tracker.log_params({"parsing": config.parsing.model_dump(mode="json")})
    tracker.log_params({f"fingerprint.{split.name}": split.graphs.fingerprint for split in splits})
    reused = [reuse_shards(split.graphs, _version(config, split), graph_shards.counts_path) for split in splits]
    missing = [split.missing() for split in splits]
    if any(missing):
        _make_shards(config, splits, missing, tracker)
    total = GraphCounts()
    for split, count in zip(splits, reused, strict=True):
        directory, paths, counts = split.graphs.directory, split.graphs.paths, GraphCounts()
        stored = directory.pull(lambda name: not name.endswith(".tar"))
        for path in paths:
            counts.merge(graph_shards.read_counts(path))
        content = {"split": split.name, "counts": counts.model_dump(), "shards": len(paths), "reused_shards": count}
        files = [file.name for path in paths for file in shard_files(path, graph_shards.counts_path)]
        directory.complete(content, files, stored)
        _log(split.name, counts, tracker)
        total.merge(counts)
    return StageReport(NAME, config.work_dir / NAME, in_words(total))


@dataclass
class _Parsing:
    """Actor that holds the spaCy pipeline and makes one shard at a time."""

    pipeline: str | None
    batch_size: int
    mirror: Mirror
    run: str = ""  # in MLflow, for the log

    def prepare(self) -> None:
        """Load the pipeline, once for all shards."""
        configure_worker(NAME, self.run)
        self._nlp = load_pipeline(self.pipeline)

    def work(self, spec: graph_shards.ParseSpec) -> int:
        """Make a shard; return its number of captions."""
        spec.path.parent.mkdir(parents=True, exist_ok=True)
        with self.mirror.pinned_shard(spec.features):
            captions = graph_shards.parse_shard(spec, self._nlp, self.batch_size).captions
        self.mirror.push(spec.path, graph_shards.counts_path(spec.path), sidecar_path(spec.path))
        self.mirror.make_room()
        return captions


def _make_shards(config: PipelineConfig, splits: list[Split], missing: list[list[Path]], tracker: Tracker) -> None:
    cluster.connect(config.ray.address)
    settings = config.parsing
    actor = ray.remote(_Parsing).options(num_cpus=settings.cpus_per_actor)
    done = ActorPool(
        start=lambda: actor.remote(settings.pipeline, settings.batch_size, config.mirror, tracker.run_id),
        size=min(settings.actors, sum(map(len, missing))),
        items=chain.from_iterable(map(Split.specs, splits, missing)),
        describe=lambda spec: f"shard {spec.path}",
    ).results()
    with disk_errors(NAME, config.work_dir):
        track_progress(done, sum(split.graphs.captions for split in splits), NAME, "captions", tracker)


def _log(split: str, counts: GraphCounts, tracker: Tracker) -> None:
    kinds = {"objects": counts.objects, "attributes": counts.attributes, "relations": counts.relations}
    figures: dict[str, float] = {"captions": counts.captions, "problems": counts.problems.total()}
    for kind, words in kinds.items():
        figures |= {
            kind: words.total(),
            f"different_{kind}": len(words),
            f"share_without_{kind}": counts.without[kind] / max(1, counts.captions),
        }
    tracker.log_metrics({f"{NAME}/{split}/{name}": float(value) for name, value in figures.items()})
    tracker.log_dict(
        {"problems": dict(counts.problems), **{kind: words.most_common(_COMMONEST) for kind, words in kinds.items()}},
        f"parse/{split}/commonest.json",
    )


def _version(config: PipelineConfig, split: Split) -> Version:
    """Return the identity of each shard: its captions are those in the feature shard, without skipped images."""
    settings = settings_of(config)
    split.features.directory.pull(lambda name: name.endswith(".json"))
    contents = {
        path.name: fingerprint({**settings, "features": read_index(split.features.directory.path / path.name).sha256})
        for path in split.graphs.paths
    }
    return Version(fingerprint(settings), contents)

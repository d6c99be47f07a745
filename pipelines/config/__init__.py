"""The configuration of a pipeline: its typed schema, and its loading from preset, file and command line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PrivateAttr, ValidationError

from pipelines.config.datasets import Dataset
from pipelines.config.features import Features
from pipelines.config.layers import Layer, file_layers, merged, override_layer, preset_layers
from pipelines.config.messages import explain
from pipelines.config.model import ModelConfig, VocabularyConfig
from pipelines.config.training import GRAPH_PROTOCOLS, EvaluationConfig, TrainingConfig, TrainingSettings
from pipelines.kinds import LossConfig, known_kinds, trained_kind
from pipelines.kinds.inputs import KindSettings
from pipelines.kinds.kind import ModelKind
from pipelines.plugins import load_plugins
from pipelines.schema.captions import ParsingConfig, PoolsConfig
from pipelines.schema.compression import compression_name
from pipelines.schema.error import ConfigError
from pipelines.schema.experiment import Experiment
from pipelines.schema.fields import (
    AbsolutePath,
    Address,
    Float,
    InItsFolder,
    Int,
    Strict,
    absolute,
    default_storage,
    default_work_dir,
    without_secret,
)
from pipelines.schema.variants import Named, Variants
from preprocessing.storage.address import is_s3
from preprocessing.storage.mirror import Mirror
from preprocessing.storage.redaction import SecretAddress, secrets_in

__all__ = ["DEFAULT_CONFIG", "ConfigError", "PipelineConfig", "load_config", "load_plugins"]

DEFAULT_CONFIG = Path(__file__).resolve().with_name("data") / "scenes.yaml"

# MLflow keeps 256 characters of a name; folders are named by it too.
_IDENTIFIER = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"


def _tracking_uri(uri: str) -> str:
    """Hide the secret of an address, and make the path to a database absolute: workers run in other folders."""
    if uri.startswith("sqlite:///"):
        return SecretAddress(f"sqlite:///{absolute(Path(uri.removeprefix('sqlite:///')))}")
    address = SecretAddress(uri)  # from here on no message shows its secret, that of the error neither
    if any(re.search(r"[@:/?#\s'\"<>]", secret) for secret in secrets_in(uri)):
        raise ValueError("write a password percent-encoded: %40 for @, %3A for :, %2F for /, %3F for ?, %23 for #")
    return address


class TrackingConfig(Strict):
    """The place where runs are recorded."""

    uri: Annotated[str, AfterValidator(_tracking_uri), InItsFolder] | None = Field(
        None,
        description="MLflow server or database; by default sqlite in work_dir, for one machine. A password in it stays "
        "on this machine, others take the address from MLFLOW_TRACKING_URI",
    )
    experiment: str | None = Field(
        None, min_length=1, max_length=256, description="by default the configuration's name"
    )
    artifacts: Address | None = Field(
        None, description="folder or s3://bucket/folder of a new experiment's artifacts; by default the server's"
    )


class StorageConfig(Strict):
    """The place where outputs are kept besides work_dir, so that any machine can resume.

    With an address every finished shard, sidecar, manifest and checkpoint is copied there under its path in work_dir;
    shards that a later version of the data reuses stay where they are. work_dir is then a cache, which machines need
    not share: what is missing in one is copied from the address. S3 itself is set up as for every AWS tool, in the
    environment or in ~/.aws, on every machine (docs/s3.md).
    """

    address: Address | None = Field(
        default_factory=default_storage,
        description="s3://bucket/folder, or a folder that all machines see; null: work_dir is all there is",
    )
    cache_gb: Float | None = Field(
        None, gt=0, description="10^9 bytes of shards that a machine keeps in work_dir, those used last; by default all"
    )
    lease_seconds: Float = Field(
        120.0, ge=6, description="seconds after which the work of a lost machine is free for another; renewed six times"
    )

    def _misfits(self) -> Iterator[str]:
        if self.cache_gb is not None and self.address is None:
            yield "cache_gb has no effect without an address: shards are not removed if they cannot be had again"


class IndexConfig(Strict):
    """The index of the gallery."""

    compress: Annotated[str, AfterValidator(compression_name)] | None = Field(
        None,
        exclude_if=lambda form: form is None,
        description="smaller vectors: pca128-int8 (128 dimensions, any number of them), pca256, int8, float16; "
        "recall and RSUM by them are measured",
    )


class CardConfig(Strict):
    """Entries of the model card that no stage can know."""

    intended_use: str | None = Field(None, min_length=1, description="uses that the model is meant for, and is not")
    data_licence: str | None = Field(None, min_length=1, description="owners of images and captions, permitted use")
    weights_licence: str | None = Field(None, min_length=1, description="owners of pretrained weights, permitted use")


class RegistryConfig(Strict):
    """The name of the registered model, its card, and what guards its champion."""

    name: str | None = Field(None, pattern=_IDENTIFIER, description="by default the configuration's name")
    guards: dict[str, Annotated[Float, Field(ge=0)]] = Field(
        {"i2t_r01": 1.0, "t2i_r01": 1.0}, description="metric -> by how much a new champion's may be lower"
    )
    card: CardConfig = Field(CardConfig(), description="for the card of the model")


class RetrainConfig(Strict):
    """Retraining on a schedule."""

    start: Literal["champion", "scratch"] = Field(
        "champion", description="initial weights: the champion's, if there is one, or those of `model`"
    )
    audit: Literal["leave_out", "refuse", "none"] = Field(
        "leave_out",
        description="audit of new captions by the champion: those that fit their image badly are not trained on; "
        "`refuse` leaves none out, and stops above audit_limit, as leave_out does",
    )
    audit_loss: Float = Field(0.05, ge=0, lt=1, description="share of good pairs that the audit may take for bad ones")
    audit_limit: Float = Field(
        0.3, ge=0, le=1, description="share of the new captions, if these are 100 or more, that may fit badly"
    )
    keep: Int | None = Field(
        None,
        ge=1,
        description="newest versions that stay after each start, as by `vse prune --keep`; by default all of them",
    )
    # It may hold the secret of a webhook, and no record needs it.
    notify: str | tuple[str, ...] | None = Field(
        None,
        min_length=1,
        exclude_if=bool,
        repr=False,
        description="what is told of outcomes: a command (list, or shell's line), or the http(s) address of a webhook",
    )
    notify_after: Int = Field(7, ge=1, description="starts in a row without new data after which that is told, too")


class RayConfig(Strict):
    """The cluster that the work runs on."""

    address: Annotated[str, AfterValidator(without_secret)] | None = Field(
        None, min_length=1, description="HOST:PORT of a cluster; by default the job's own, else one on this machine"
    )


class PipelineConfig(Strict):
    """Everything a pipeline run is determined by."""

    name: str = Field("scenes", pattern=_IDENTIFIER, description="name of the experiment and of the registered model")
    preset: str = Field("vse_infty", description="published system that gives the defaults")
    seed: Int = Field(0, ge=0, description="seed of initial weights, order of samples and augmentation")
    work_dir: AbsolutePath = Field(
        default_factory=default_work_dir,
        description="folder for all that is written; shared between the machines of a cluster, or with storage",
    )
    plugins: tuple[str, ...] = Field(
        (),
        exclude_if=lambda plugins: not plugins,
        description="modules to import, with parts of one's own (docs/extending.md): NAME of NAME.py next to this "
        "file, or of an importable module",
    )
    stages: tuple[Annotated[Named, Variants("name", "stage")], ...] = Field(
        (), exclude_if=lambda stages: not stages, description="stages of plugins, each with its `name` and its settings"
    )
    dataset: Dataset = Field(description="images and captions")
    features: Features = Field(description="features of the images, which the image encoder takes")
    parsing: ParsingConfig = Field(ParsingConfig(), description="caption parser")
    pools: PoolsConfig = Field(PoolsConfig(), description="words that replace others in negatives and attacks")
    vocabulary: VocabularyConfig = Field(VocabularyConfig(), description="words")
    model: ModelConfig = Field(description="the two towers")
    loss: LossConfig = Field(description="the objective")
    training: TrainingConfig = Field(description="optimisation, workers, checkpoints")
    evaluation: EvaluationConfig = Field(EvaluationConfig(), description="split, protocols, intervals")
    index: IndexConfig = Field(IndexConfig(), description="index of the gallery")
    storage: StorageConfig = Field(default_factory=StorageConfig, description="copies of outputs, on S3 or a disk")
    tracking: TrackingConfig = Field(TrackingConfig(), description="MLflow")
    registry: RegistryConfig = Field(RegistryConfig(), description="registered model")
    retrain: RetrainConfig = Field(RetrainConfig(), description="retraining on a schedule")
    ray: RayConfig = Field(RayConfig(), description="Ray cluster")

    _is_dry_run: bool = PrivateAttr(False)

    def for_dry_run(self, dry_run: bool = True) -> PipelineConfig:
        """Return the same configuration for planning alone: nothing is written, neither here nor on the storage."""
        config = self.model_copy()
        config._is_dry_run = dry_run
        return config

    @property
    def mirror(self) -> Mirror:
        """The work folder with its copy on the storage."""
        storage = self.storage
        room = None if storage.cache_gb is None else int(storage.cache_gb * 1e9)
        return Mirror(self.work_dir, storage.address, room, self._is_dry_run, storage.lease_seconds)

    @property
    def tracking_uri(self) -> str:
        """The MLflow address in force."""
        return self.tracking.uri or f"sqlite:///{self.work_dir / 'mlflow.db'}"

    @property
    def experiment(self) -> Experiment:
        """The experiment in MLflow, defaults filled in."""
        name = self.tracking.experiment or self.name
        return Experiment(name, self.tracking_uri, self.tracking.artifacts, self.work_dir, self.preset)

    @property
    def registered_model(self) -> str:
        """The name the model is registered under."""
        return self.registry.name or self.name

    @property
    def kind(self) -> ModelKind:
        """The kind of model that is trained."""
        return trained_kind(self.loss.name)

    @property
    def kind_settings(self) -> KindSettings:
        """The settings that the kind of model works by."""
        return KindSettings(
            self.model.text, self.loss, self.vocabulary.min_count, self.seed, self.parsing.pipeline, self.pools
        )

    @property
    def training_settings(self) -> TrainingSettings:
        """The settings that a training process works by."""
        return TrainingSettings(
            self.seed,
            self.model,
            self.loss,
            self.training,
            self.kind,
            self.kind_settings,
            self.features.member,
            self.dataset.eval_split,
            self.evaluation.folds,
            self.mirror,
        )

    @property
    def reads_graphs(self) -> bool:
        """Return whether anything needs the parsed captions: training, or a protocol."""
        return self.kind.reads_graphs or not GRAPH_PROTOCOLS.isdisjoint(self.evaluation.protocols)

    def _misfits(self) -> Iterator[str]:
        yield from self._work_dir_misfits()
        yield from self._storage_misfits()
        yield from self._kind_misfits()
        yield from self._feature_misfits()

    def _work_dir_misfits(self) -> Iterator[str]:
        if self.tracking.uri is None and (sign := re.search(r"\?|%[0-9a-fA-F]{2}", str(self.work_dir))):
            yield (
                f"work_dir: {self.work_dir} has {sign[0]} in it, which means something else in the address of the "
                "MLflow database there; rename the folder, or name another database as tracking.uri"
            )

    def _storage_misfits(self) -> Iterator[str]:
        address = self.storage.address
        if address is None or is_s3(address):
            return
        storage, work_dir = Path(os.path.realpath(address)), Path(os.path.realpath(self.work_dir))
        if storage.is_relative_to(work_dir) or work_dir.is_relative_to(storage):
            yield (
                f"storage.address: {address} and work_dir {self.work_dir} are one folder, or one lies in the other: "
                "making room in work_dir would delete the only copies; name folders that lie apart"
            )

    def _kind_misfits(self) -> Iterator[str]:
        loss, text = self.loss.name, self.model.text.name
        for kind in known_kinds():
            if kind.text is not None and (loss == kind.loss) != (text == kind.text):
                yield (
                    f"loss.name: {kind.loss!r} goes with {kind.title}'s model (model.text.name {kind.text!r}); got "
                    f"{loss!r} with {text!r}"
                )
        yield from self.kind.misfits(self.model)
        if self.training.caption_augmentation and not self.kind.augments_captions:
            yield (
                f"training.caption_augmentation: {self.kind.title} names the words of captions by their places, which "
                "must stay; set it to false"
            )
        if self.training.drop_worst is not None and not self.kind.has_embeddings:
            yield f"training.drop_worst: {self.kind.title}'s model has no embeddings to find the worst by; leave it out"
        unfit = [name for name in self.evaluation.protocols if name in GRAPH_PROTOCOLS | {"cxc"}]
        if unfit and not self.kind.has_embeddings:
            yield (
                f"evaluation.protocols: {', '.join(unfit)} need embeddings, which {self.kind.title}'s model has not; "
                "leave them out"
            )

    def _feature_misfits(self) -> Iterator[str]:
        extractor = self.features.extractor
        brings_features = self.dataset.format in ("precomputed", "hgr")
        if brings_features != (extractor == "precomputed"):
            wanted = "precomputed" if brings_features else "grid"
            yield (
                f"features.extractor: {extractor!r} cannot read dataset.format {self.dataset.format!r}; set "
                f"features.extractor to {wanted!r}"
            )
        takes_images = self.model.image.takes_pixels
        if takes_images != (extractor == "images"):
            remedy = "set features.extractor to 'images'" if takes_images else "set model.image.name to 'backbone'"
            yield (
                f"model.image.name: {self.model.image.name!r} cannot read features.extractor {extractor!r}; {remedy}, "
                "or the other way round"
            )
        if self.training.image_augmentation and not takes_images:
            yield "training.image_augmentation: has no effect on features, which were computed before; set it to false"
        if self.training.feature_dropout and takes_images:
            yield "training.feature_dropout: there are no features before the backbone; set it to 0"


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> PipelineConfig:
    """Load a configuration: its preset, the files that it inherits, itself, the overrides; later ones win.

    `overrides` are `key.in.dots=value` items, the value as YAML; without a path it is the embedded default, generated
    scenes. Raises ConfigError if anything about it is wrong; one message for all that was found.
    """
    layers = [*file_layers(path or DEFAULT_CONFIG), *(override_layer(item) for item in overrides)]
    preset = merged(layers).get("preset", PipelineConfig.model_fields["preset"].default)
    return from_layers([*preset_layers(preset), *layers])


def from_layers(layers: Sequence[Layer]) -> PipelineConfig:
    """Merge layers into a configuration; raises ConfigError as `load_config`."""
    values = merged(layers)
    load_plugins(values.get("plugins", ()))
    try:
        return PipelineConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(explain(error, PipelineConfig, values, layers)) from None

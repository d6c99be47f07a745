"""The work on the captions that comes before training: checks, the caption encoder, files of negatives, tables."""

import fcntl
from itertools import chain
from pathlib import Path
from typing import Any

from pipelines.config.model import ModelConfig
from pipelines.config.training import TrainingConfig, TrainingSettings
from pipelines.kinds.inputs import KindSettings, SplitData
from pipelines.kinds.kind import ModelKind
from pipelines.runtime.stage import ShardSet, StageDir, StageError, check_outputs, empty_folder, fingerprint, move_up
from pipelines.schema.encoders import SetEncoder
from pipelines.training.initial_weights import write_feature_mean
from pipelines.training.left_out import keep_captions, kept_captions, number_dropped
from pipelines.training.schedules import LossSchedule
from pipelines.training.trained_pairs import write_trained_pairs
from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.captions.token_table import TokenTable
from preprocessing.loading.sampler import BatchSampler
from preprocessing.shards.reader import ShardReader
from preprocessing.shards.split_index import save_fields
from preprocessing.storage.atomic import locked
from preprocessing.storage.mirror import lock_file
from vse_core.digests import file_digest
from vse_core.models import build_model

# Raised when the same shards and words would give other tables.
TABLES_VERSION = 2


def prepare(
    settings: TrainingSettings, train: SplitData, evaluation: SplitData, directory: Path
) -> tuple[CaptionEncoder, dict[str, float], int]:
    """Check that the shards can feed the run, and write what turns captions into inputs of the model.

    Returns the captions' encoder, figures about their tokens for the manifest, and the optimiser steps of the run.
    Raises StageError if a split is too small, `evaluation.folds` does not divide the evaluation split, or the captions'
    encoder, the model or the loss cannot be made.
    """
    training = settings.training
    captions = train.reader.num_captions
    left_out = {}
    if training.leave_out is not None:
        captions = keep_captions(training.leave_out, train.reader, directory)
        left_out = {"captions_left_out": train.reader.num_captions - captions}
    write_trained_pairs(train.reader, kept_captions(directory), training.initial, directory, bool(training.epochs))
    require_captions(training, captions)
    _require_sizes(settings, len(evaluation.reader))
    caption_encoder, facts = settings.kind.behaviour.prepare(settings.kind_settings, train, evaluation, directory)
    texts = chain.from_iterable(split.reader.texts() for split in (train, evaluation))
    facts["captions_truncated"] = sum(map(caption_encoder.truncates, texts))
    facts |= left_out
    caption_encoder.save(directory / caption_encoder.FILE)
    steps_per_epoch = training.steps_per_epoch(
        BatchSampler(captions, training.batch_size, settings.seed).steps_per_epoch
    )
    try:
        build_model(**model_specification(settings.model, train.reader, caption_encoder))
        LossSchedule(settings.loss, steps_per_epoch)
    except ValueError as error:
        raise StageError(f"train: {error}") from error
    if isinstance(settings.model.image, SetEncoder) and settings.model.image.center:
        write_feature_mean(train.reader, directory)
    return caption_encoder, facts, training.epochs * steps_per_epoch


def require_captions(training: TrainingConfig, captions: int) -> None:
    """Raise StageError if captions, without the worst of them if those are dropped, are fewer than a batch has."""
    left = captions - number_dropped(training.drop_worst, captions)
    if left < training.batch_size:
        dropped = f" once training.drop_worst {training.drop_worst:g} is left out" if training.drop_worst else ""
        raise StageError(
            f"train: dataset.train_split has {left} captions to train on{dropped}, fewer than training.batch_size "
            f"{training.batch_size}: lower it, add data, or leave fewer out"
        )


def _require_sizes(settings: TrainingSettings, images: int) -> None:
    """Raise StageError if the images to evaluate on do not fit the settings."""
    batch, workers = settings.training.batch_size, settings.training.most_workers
    if workers > batch // 2 or workers > images:
        raise StageError(
            f"train: training.workers {workers} are too many for batches of {batch} pairs and {images} images of "
            f"{settings.eval_split}: lower it"
        )
    require_equal_folds("train", settings.folds, images, settings.eval_split)


def require_equal_folds(stage: str, folds: int, images: int, split: str) -> None:
    """Raise StageError if the images of a split cannot be evaluated in folds of one size."""
    if images % folds:
        raise StageError(
            f"{stage}: evaluation.folds {folds} does not divide the {images} images of {split} into folds of equal "
            f"size: set it to 1, or to another divisor of {images}"
        )


def model_specification(model: ModelConfig, reader: ShardReader, caption_encoder: CaptionEncoder) -> dict[str, Any]:
    """Return the arguments of `vse_core.models.build_model` for images and captions like those of a split."""
    return {
        "feature_dim": None if reader.is_image_files else reader.feature_dim,
        "vocabulary_size": len(caption_encoder),
        **model.specification(),
    }


def make_tables(
    root: Path,
    name: str,
    source: ShardSet,
    split: SplitData,
    encoder: CaptionEncoder,
    run: Path,
    kind: ModelKind,
    settings: KindSettings,
) -> Path:
    """Return the directory of a split's tables, which training processes map to start, made if they are not there.

    They are the positions of the samples, the captions' tokens and what the kind adds, in
    `<work_dir>/tables/<split>/<fingerprint>/`, made once for all trainings on the same shards and words. `source` is
    the split's extraction; the captions' encoder is in the directory of a run. Raises DigestError if tables that are
    there were changed, and StageError as the kind's tables.
    """
    identity = {
        "version": TABLES_VERSION,
        "shards": source.fingerprint,
        "feature": split.reader.feature,
        "encoder": [encoder.FILE, file_digest(run / encoder.FILE)],
        **kind.behaviour.tables_identity(settings, split),
    }
    tables = StageDir(root, f"tables/{name}", fingerprint(identity), source.directory.mirror)
    with locked(lock_file(root, tables.create(), "making"), fcntl.LOCK_EX):
        if not tables.is_complete():
            with empty_folder(tables.path) as made:
                split.reader.index.save(made)
                save_fields(TokenTable.encode(split.reader.texts(), encoder), made)
                kind.behaviour.write_tables(settings, split, encoder, made)
                tables.complete({"captions": split.reader.num_captions}, move_up(made))
    tables.pull()
    check_outputs(tables.path)
    return tables.path

"""The work on the training captions that comes before training: checks, the caption encoder, files of negatives."""

from itertools import chain
from pathlib import Path
from typing import Any

from pipelines.config.model import ModelConfig
from pipelines.config.training import TrainingSettings
from pipelines.kinds.inputs import SplitData
from pipelines.runtime.stage import StageError
from preprocessing.captions.encoder import CaptionEncoder, save_caption_encoder
from preprocessing.loading.sampler import BatchSampler
from preprocessing.shards.reader import ShardReader
from vse_core.models import build_model


def prepare(
    settings: TrainingSettings, train: SplitData, evaluation: SplitData, directory: Path
) -> tuple[CaptionEncoder, dict[str, float], int]:
    """Check that the shards can feed the run, and write what turns captions into inputs of the model.

    Returns the captions' encoder, figures about their tokens for the manifest, and the optimiser steps of the run.
    Raises StageError if the split is too small, or the captions' encoder or the model cannot be made.
    """
    training = settings.training
    batch, workers = training.batch_size, training.most_workers
    captions = train.reader.num_captions
    if captions < batch:
        raise StageError(
            f"train: dataset.train_split has {captions} captions, fewer than training.batch_size {batch}: lower it or "
            "add data"
        )
    if workers > batch // 2 or workers > len(evaluation.reader):
        raise StageError(
            f"train: training.workers {workers} are too many for batches of {batch} pairs and "
            f"{len(evaluation.reader)} images of {settings.eval_split}: lower it"
        )
    caption_encoder, facts = settings.kind.behaviour.prepare(settings.kind_settings, train, evaluation, directory)
    texts = chain.from_iterable(split.reader.texts() for split in (train, evaluation))
    facts["captions_truncated"] = sum(map(caption_encoder.truncates, texts))
    save_caption_encoder(caption_encoder, directory)
    try:
        build_model(**model_specification(settings.model, train.reader, caption_encoder))
    except ValueError as error:
        raise StageError(f"train: {error}") from error
    batches = BatchSampler(captions, batch, settings.seed).steps_per_epoch
    return caption_encoder, facts, training.epochs * training.steps_per_epoch(batches)


def model_specification(model: ModelConfig, reader: ShardReader, caption_encoder: CaptionEncoder) -> dict[str, Any]:
    """Return the arguments of `vse_core.models.build_model` for images and captions like those of a split."""
    return {
        "feature_dim": None if reader.is_image_files else reader.feature_dim,
        "vocabulary_size": len(caption_encoder),
        **model.specification(),
    }

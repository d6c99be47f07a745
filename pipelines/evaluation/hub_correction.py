"""The hub correction of an evaluated model: its bank is a sample of the training split.

M items of the bank, B images, C captions, K views, D embedding.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from pipelines.config import PipelineConfig
from pipelines.evaluation.protocols.results import Results
from pipelines.inference.image_inputs import image_source
from pipelines.inference.learned_values import learned_temperature
from pipelines.inference.text_embedder import TextEmbedder, text_batches
from pipelines.kinds import saved_kind
from pipelines.kinds.inputs import SplitData, SplitPaths
from pipelines.registry.models import CORRECTION
from pipelines.retrieval.correction import FEWEST, MOST, Correction
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.progress import counted
from pipelines.runtime.stage import StageError, check_outputs
from pipelines.training.readers import split_reader
from preprocessing.captions.token_table import TokenTable
from preprocessing.loading.loader import image_batches
from preprocessing.shards.reader import ShardReader
from vse_core.digests import read_digests
from vse_core.evaluation.hubs import corrected
from vse_core.evaluation.recall import evaluate_retrieval
from vse_core.outputs import embed

# Temperatures to choose from if training has learned none.
TEMPERATURES = (0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.14, 0.2)
_BATCH = 128

Numbers = npt.NDArray[np.int64]


class UncorrectedError(StageError):
    """A model whose hubs cannot be corrected; the reason."""


def find_correction(
    config: PipelineConfig, train: SplitPaths, texts: TextEmbedder, model: Path, gallery: Gallery, may_choose: bool
) -> Correction:
    """Return the correction of a registered model, or fit that of a model in a directory to the training split.

    The temperature is the one that was learned with the model; without one, and if the split of the gallery
    `may_choose`, that of the highest corrected RSUM there. Raises UncorrectedError if the bank would be too small or of
    the evaluated items, or no temperature can be had.
    """
    if not gallery.has_embeddings:
        raise UncorrectedError("the model has no embeddings")
    if config.dataset.eval_split == config.dataset.train_split:
        raise UncorrectedError(f"the bank would be of the same split {config.dataset.eval_split!r}")
    stored = Correction.load(model.parent / CORRECTION)
    if stored is not None:
        return stored
    temperature = learned_temperature(model)
    if temperature is None and not may_choose:
        raise UncorrectedError("the model has no learned temperature, and none is chosen on the split that it is for")
    bank = embed_bank(config, train, texts, model)
    source = "learned in training"
    if temperature is None:
        temperature, source = _chosen(bank, gallery), f"chosen on the split {config.dataset.eval_split}"
    correction = Correction(*bank, temperature, source)
    return correction.calibrated(correction.of_gallery(gallery))


def deciding_correction(config: PipelineConfig, model: Path) -> dict[str, Any]:
    """Return the digests of a stored correction, which `find_correction` prefers to its own; nothing without one."""
    stored = model.parent / CORRECTION
    if not config.evaluation.hub_correction or not stored.is_dir():
        return {}
    return {"correction": read_digests(stored)[1]}


def embed_bank(
    config: PipelineConfig, train: SplitPaths, texts: TextEmbedder, model: Path, most: int = MOST
) -> tuple[Tensor, Tensor]:
    """Embed the same sample of training images (M, K, D) and captions (M, D) each time; UncorrectedError if too few."""
    with _opened(config, train) as data:
        images_M = _sample(data.reader, most)
        captions, texts_M = _captions_of(data.reader, images_M, most)
        if min(len(images_M), len(captions)) < FEWEST:
            raise UncorrectedError(
                f"split {config.dataset.train_split!r} has {len(images_M):,} images and {len(captions):,} captions, "
                f"fewer than {FEWEST:,}"
            )
        inputs = saved_kind(model).behaviour.text_inputs(config.model.text, data, texts.caption_encoder, texts.model)
        return _embedded_images(texts, data.reader, images_M), _embedded_texts(texts, captions, texts_M, inputs)


def confidence_of(correction: Correction) -> Results:
    """Return the expected calibration errors of first hits, ``i2t_calibration_error`` and ``t2i_calibration_error``."""
    errors = {"i2t": correction.calibrations["captions"].error, "t2i": correction.calibrations["images"].error}
    summary = f"calibration errors {errors['i2t']:.3f} and {errors['t2i']:.3f}"
    return Results("confidence", {f"{way}_calibration_error": error for way, error in errors.items()}, summary)


@contextmanager
def _opened(config: PipelineConfig, train: SplitPaths) -> Iterator[SplitData]:
    """Open the training split; of shards on a storage those that are read are copied."""
    mirror, graphs = config.mirror, [] if train.graphs is None else [train.graphs]
    with mirror.pinned(*graphs):
        reader = split_reader(mirror, train.shards, config.features.member)
        check_outputs(train.shards, *graphs)
        yield SplitData(reader, train.graphs)


def _sample(reader: ShardReader, most: int) -> Numbers:
    """Draw images, shard by shard, so that few shards of many are read; the same ones each time."""
    first = reader.index.first_images
    shards = np.random.default_rng(0).permutation(len(first) - 1)
    return np.sort(np.concatenate([np.arange(first[shard], first[shard + 1]) for shard in shards])[:most])


def _captions_of(reader: ShardReader, images_M: Numbers, most: int) -> tuple[Numbers, list[str]]:
    """Draw captions of images; return their numbers in the split, and their texts."""
    numbered = [
        (reader.caption_starts[image] + place, caption["text"])
        for image in images_M.tolist()
        for place, caption in enumerate(reader.meta(image)["captions"])
    ]
    drawn = np.random.default_rng(0).permutation(len(numbered))[:most]
    captions = [numbered[position] for position in np.sort(drawn)]
    return np.array([number for number, _ in captions], dtype=np.int64), [text for _, text in captions]


def _embedded_images(texts: TextEmbedder, reader: ShardReader, images_M: Numbers) -> Tensor:
    model = texts.model
    batches = image_batches(image_source(model, reader), _BATCH, images_M.tolist())
    images_MKD: Tensor = embed(
        model, model.encode_images, counted(batches, "embed training images", len(images_M), "images")
    )
    return images_MKD


def _embedded_texts(texts: TextEmbedder, captions: Numbers, texts_M: list[str], inputs: Any) -> Tensor:
    model, encoder = texts.model, texts.caption_encoder
    tokens = TokenTable.encode(texts_M, encoder)
    batches = text_batches(tokens, encoder.pad_id, lambda drawn, size: inputs(captions[drawn], size), _BATCH)
    texts_MD: Tensor = embed(
        model, model.encode_texts, counted(batches, "embed training captions", len(texts_M), "captions")
    )
    return texts_MD


def _chosen(bank: tuple[Tensor, Tensor], gallery: Gallery) -> float:
    """Return the temperature of the highest corrected RSUM of a gallery."""
    counts = [len(record.captions) for record in gallery.records]

    def rsum(temperature: float) -> float:
        biases = Correction(*bank, temperature, "").biases(gallery.images_BKD, gallery.texts_CD)
        return evaluate_retrieval(*corrected(gallery.images_BKD, gallery.texts_CD, *biases), counts).rsum

    return max(TEMPERATURES, key=rsum)

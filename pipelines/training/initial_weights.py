"""The weights that training starts from: those of a finished model, word vectors, and the mean of the features."""

import shutil
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from safetensors.torch import load_file, save

from pipelines.inference.learned_values import read_learned_values
from pipelines.runtime.progress import progress_bar
from pipelines.runtime.stage import StageError
from preprocessing.captions.encoder import CaptionEncoder, load_caption_encoder
from preprocessing.captions.word_vectors import WordVectors
from preprocessing.shards.reader import ShardReader
from preprocessing.storage.atomic import link_tree, write_bytes_atomic
from preprocessing.storage.mirror import CONTENTS, Mirror
from vse_core.digests import check_digests
from vse_core.models import Model, start_from
from vse_core.models.model import WEIGHTS

INITIAL, FEATURE_MEAN = "initial", "feature_mean.safetensors"


def keep_initial(model: Path, directory: Path, mirror: Mirror) -> None:
    """Copy a model into a run's directory, from which all workers start; DigestError if it was changed."""
    kept = directory / INITIAL
    if not kept.exists():
        check_digests(model)
        aside = directory / f".{INITIAL}.tmp"
        shutil.rmtree(aside, ignore_errors=True)
        link_tree(model, aside)
        aside.rename(kept)
    if not mirror.has(kept / CONTENTS):
        mirror.push_folder(kept)


@runtime_checkable
class WordEncoder(Protocol):
    """A text encoder that reads words."""

    def set_word_vectors(self, words_W: torch.Tensor, vectors_WE: torch.Tensor) -> None:
        """Fill in the vectors of some words, by their ids."""


def start_from_word_vectors(model: Model, directory: Path) -> None:
    """Fill in the word vectors in a run's directory, if there are any."""
    path = directory / WordVectors.FILE
    if path.exists() and isinstance(model.text_encoder, WordEncoder):
        vectors, device = WordVectors.load(path), next(model.parameters()).device
        words_W, vectors_WE = torch.from_numpy(vectors.words_W), torch.from_numpy(vectors.vectors_WE)
        model.text_encoder.set_word_vectors(words_W.to(device), vectors_WE.to(device))


def write_feature_mean(reader: ShardReader, directory: Path) -> None:
    """Write the mean (F,) of a split's feature vectors, added up by images, for all processes before they start.

    A model with `model.image.center` sees images around it.
    """
    total_F, count = np.zeros(reader.feature_dim), 0
    with progress_bar("mean of the features", len(reader), "images", delay=5) as bar:
        for image in range(len(reader)):
            array_NF = reader.features(image)
            total_F += array_NF.sum(axis=0, dtype=np.float64)
            count += len(array_NF)
            bar.update()
    write_bytes_atomic(directory / FEATURE_MEAN, save({"mean_F": torch.from_numpy(total_F / count).float()}))


def start_from_feature_mean(model: Model, directory: Path) -> None:
    """Fill in the mean in a run's directory, if there is one."""
    if (directory / FEATURE_MEAN).exists():
        model.get_buffer("image_encoder.center.mean_F").copy_(load_file(directory / FEATURE_MEAN)["mean_F"])


def start_from_initial(model: Model, caption_encoder: CaptionEncoder, directory: Path) -> None:
    """Fill a model with the initial weights in a run's directory, if any; StageError if they are of another model."""
    kept = directory / INITIAL
    if not kept.is_dir():
        return
    try:
        check_digests(kept)
        words = _common_words(caption_encoder, load_caption_encoder(kept))
        start_from(model, load_file(kept / WEIGHTS), words)
    except (FileNotFoundError, ValueError) as error:
        raise StageError(
            f"train: training.initial is not a model to start this one from: {error}; leave training.initial out (for "
            "retraining: set retrain.start to scratch), or set model to what that one was built by"
        ) from error


def initial_learned_values(directory: Path) -> dict[str, float]:
    """Return what the loss of the initial model in a run's directory has learned; empty if there is none of either."""
    return read_learned_values(directory / INITIAL)


def _common_words(own: CaptionEncoder, other: CaptionEncoder) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return the ids of the words that both know, in either; None if both read the same pieces of words."""
    words, other_words = own.vocabulary, other.vocabulary
    if words is None and other_words is None:
        return None
    if words is None or other_words is None:
        raise ValueError("one of them reads words and the other pieces of words")
    ids = [(own_id, other_words.find(words.word(own_id))) for own_id in range(len(words))]
    common = [(own_id, other_id) for own_id, other_id in ids if other_id is not None]
    own_W, other_W = torch.tensor(common).T
    return own_W, other_W

"""A training that begins with the weights of a finished model: they are kept with the run, and fitted to its words."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file

from pipelines.runtime.stage import StageError
from preprocessing.captions.encoder import CaptionEncoder, load_caption_encoder
from preprocessing.captions.spaced_words import SpacedWords
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.storage import Mirror
from vse_core.models import Model, start_from
from vse_core.models.bundle import WEIGHTS

INITIAL = "initial"


def keep_initial(model: Path, directory: Path, mirror: Mirror) -> None:
    """Copy a model into a run's directory, from which the workers of all machines start.

    Args:
        model: directory of the model.
        directory: of the run.
        mirror: the work folder that it is in.
    """
    kept = directory / INITIAL
    if not kept.exists():
        aside = directory / f".{INITIAL}.tmp"
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(model, aside)
        aside.rename(kept)
    mirror.push_folder(kept)


def start_from_initial(model: Model, caption_encoder: CaptionEncoder, directory: Path) -> None:
    """Fill a model with the weights that a run's directory keeps; does nothing where it keeps none.

    Raises:
        StageError: they are of a model that is built otherwise.
    """
    kept = directory / INITIAL
    if not kept.is_dir():
        return
    try:
        start_from(model, load_file(kept / WEIGHTS), _common_words(caption_encoder, load_caption_encoder(kept)))
    except (FileNotFoundError, ValueError) as error:
        raise StageError(
            f"train: training.initial is no model to start this one from: {error}; leave training.initial out (for "
            "retraining: set retrain.start to scratch), or set model to what that one was built by"
        ) from error


def _common_words(own: CaptionEncoder, other: CaptionEncoder) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Ids of the words that both know, in either; None where these are not words but the same pieces of words.

    Raises:
        ValueError: one model reads words and the other pieces.
    """
    words, other_words = _vocabulary(own), _vocabulary(other)
    if words is None and other_words is None:
        return None
    if words is None or other_words is None:
        raise ValueError("one of them reads words and the other pieces of words")
    ids = [(own_id, other_words.find(words.word(own_id))) for own_id in range(len(words))]
    common = [(own_id, other_id) for own_id, other_id in ids if other_id is not None]
    own_W, other_W = torch.tensor(common).T
    return own_W, other_W


def _vocabulary(encoder: CaptionEncoder) -> Vocabulary | None:
    """The words that a caption encoder knows; None where it reads pieces of words."""
    if isinstance(encoder, SpacedWords):
        return encoder.vocabulary
    return encoder if isinstance(encoder, Vocabulary) else None

"""WiSE-FT: the weights of a fine-tuned dual encoder, averaged with those that it began with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pipelines.inference.learned_values import learned_logits
from pipelines.inference.start import START, read_start
from pipelines.runtime.stage import StageError, content_digest
from vse_core.encoders.dual import DualImageEncoder
from vse_core.models import Model, build_model


@torch.no_grad()
def interpolate(model: Model, directory: Path, share: float) -> Mapping[str, float]:
    """Make weights W of a model (1 - share) W_start + share W, and return the logits that it learned so as well.

    Wortsman et al., "Robust fine-tuning of zero-shot models" (2022), section 3. `directory` is the model's, whose
    low-rank updates are merged. Raises StageError if it did not begin as a pretrained dual encoder, or that is not
    found as it was.
    """
    if not isinstance(model.image_encoder, DualImageEncoder) or not (start := read_start(directory)):
        raise StageError(
            f"--interpolate is for dual encoders that were fine-tuned from pretrained weights: the model has no "
            f"{START}, which says what it began with (earlier versions wrote none)"
        )
    ((weights, digest),) = start.items()
    if digest is not None and (not Path(weights).exists() or content_digest(Path(weights)) != digest):
        raise StageError(f"--interpolate: the weights that the model began with are not in {weights} as they were")
    options = {"name": model.specification["image"]["name"], "weights": weights}
    try:
        first = build_model(**{**model.specification, "image": options})
    except ValueError as error:
        raise StageError(f"--interpolate needs the weights that the model began with: {error}") from error
    begun = first.state_dict()
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            tensor.mul_(share).add_(begun[name].to(tensor), alpha=1 - share)
    encoder: Any = first.image_encoder
    logits, learned = encoder.rebuilt_by["logits"], learned_logits(directory)
    return {name: (1 - share) * logits.get(name, value) + share * value for name, value in learned.items()}

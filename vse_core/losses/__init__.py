"""Losses over a global batch of image-caption pairs, one file an objective."""

from collections.abc import Callable
from typing import Any

from torch import nn

from vse_core.losses.result import LossResult
from vse_core.losses.triplet import TripletLoss
from vse_core.names import choose

LOSSES: dict[str, Callable[..., nn.Module]] = {"triplet": TripletLoss}

__all__ = ["LOSSES", "LossResult", "TripletLoss", "build_loss"]


def build_loss(name: str, **options: Any) -> nn.Module:
    """Build a loss by name; called as ``loss(images_BKD, texts_BD, image_ids_B)`` it returns a :class:`LossResult`.

    Raises:
        ValueError: the name or an option is unknown (the message lists the known ones).
    """
    return choose("loss", LOSSES, name, **options)

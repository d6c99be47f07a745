"""Losses over a global batch of image-caption pairs, one file an objective."""

from collections.abc import Callable
from typing import Any

from vse_core.losses.adopt import AdoptLoss
from vse_core.losses.infonce import InfoNCELoss
from vse_core.losses.multi_view import MultiViewLoss
from vse_core.losses.pair_loss import PairLoss
from vse_core.losses.result import LossResult
from vse_core.losses.triplet import TripletLoss
from vse_core.names import choose

LOSSES: dict[str, Callable[..., PairLoss]] = {
    "triplet": TripletLoss,
    "multi_view": MultiViewLoss,
    "adopt": AdoptLoss,
    "infonce": InfoNCELoss,
}

__all__ = ["LOSSES", "AdoptLoss", "InfoNCELoss", "LossResult", "MultiViewLoss", "PairLoss", "TripletLoss", "build_loss"]


def build_loss(name: str, **options: Any) -> PairLoss:
    """Build a loss by name; called as ``loss(images_BKD, texts_BD, image_ids_B)`` it returns a :class:`LossResult`.

    Args:
        name: ``triplet`` (VSE++, VSE-infinity), ``multi_view`` (MV-VSE), ``adopt`` (VSE+2AD) or ``infonce``.
        **options: keyword arguments of the loss's class.

    Raises:
        ValueError: the name or an option is unknown (the message lists the known ones).
    """
    return choose("loss", LOSSES, name, **options)

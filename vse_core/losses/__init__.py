"""Losses over a global batch, one file an objective."""

from collections.abc import Callable
from typing import Any

from vse_core.losses.adopt import AdoptLoss
from vse_core.losses.adversarial import AdversarialLoss
from vse_core.losses.global_loss import GlobalLoss
from vse_core.losses.hierarchical import HierarchicalLoss
from vse_core.losses.infonce import InfoNCELoss
from vse_core.losses.multi_view import MultiViewLoss
from vse_core.losses.pair_loss import PairLoss
from vse_core.losses.result import LossResult
from vse_core.losses.triplet import TripletLoss
from vse_core.losses.unified import UnifiedLoss
from vse_core.registry import choose

LOSSES: dict[str, Callable[..., GlobalLoss]] = {
    "triplet": TripletLoss,
    "multi_view": MultiViewLoss,
    "adopt": AdoptLoss,
    "infonce": InfoNCELoss,
    "vse_c": AdversarialLoss,
    "unified": UnifiedLoss,
    "hierarchical": HierarchicalLoss,
}

__all__ = [
    "LOSSES",
    "AdoptLoss",
    "AdversarialLoss",
    "GlobalLoss",
    "HierarchicalLoss",
    "InfoNCELoss",
    "LossResult",
    "MultiViewLoss",
    "PairLoss",
    "TripletLoss",
    "UnifiedLoss",
    "build_loss",
]


def build_loss(name: str, **options: Any) -> GlobalLoss:
    """Build one of `LOSSES` by name; ``vse_c``, ``unified`` and ``hierarchical`` are those of their models.

    The losses of two-tower models are called as ``loss(images_BKD, texts_BD, image_ids_B)``, the others with what their
    models give; all return a :class:`LossResult`. Options are those of the loss's class; unknown names and options are
    a ValueError that lists the known ones.
    """
    return choose("loss", LOSSES, name, **options)

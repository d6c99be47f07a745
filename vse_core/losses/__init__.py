"""Losses over a global batch, one file an objective."""

from collections.abc import Callable
from typing import Any

from vse_core.losses.adopt import AdoptLoss
from vse_core.losses.adversarial import AdversarialLoss
from vse_core.losses.complementary import ComplementaryLoss
from vse_core.losses.contrastive import InfoNCELoss, SigmoidLoss
from vse_core.losses.global_pairs import GlobalLoss, LossResult, PairLoss
from vse_core.losses.hierarchical import HierarchicalLoss
from vse_core.losses.hinge import TripletLoss
from vse_core.losses.multi_view import MultiViewLoss
from vse_core.losses.unified import UnifiedLoss
from vse_core.registry import choose

LOSSES: dict[str, Callable[..., GlobalLoss]] = {
    "triplet": TripletLoss,
    "multi_view": MultiViewLoss,
    "adopt": AdoptLoss,
    "infonce": InfoNCELoss,
    "sigmoid": SigmoidLoss,
    "complementary": ComplementaryLoss,
    "vse_c": AdversarialLoss,
    "unified": UnifiedLoss,
    "hierarchical": HierarchicalLoss,
}

__all__ = ["LOSSES", "GlobalLoss", "LossResult", "PairLoss", "build_loss"]


def build_loss(name: str, **options: Any) -> GlobalLoss:
    """Build one of `LOSSES` by name.

    The losses of embeddings are called as ``loss(images_BKD, texts_BD, image_ids_B)``, the others as their models'
    outputs require, and return a :class:`LossResult`. Options are those of the loss's class; unknown names and options
    are a ValueError that lists the known ones.
    """
    return choose("loss", LOSSES, name, **options)

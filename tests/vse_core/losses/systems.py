"""Any loss by name: those of embeddings, and those of the models that give more."""

from typing import Any

from vse_core.losses import GlobalLoss, build_loss
from vse_core.losses.adversarial import AdversarialLoss
from vse_core.losses.hierarchical import HierarchicalLoss
from vse_core.losses.unified import UnifiedLoss

OWN = {
    "vse_c": AdversarialLoss,
    "unified": UnifiedLoss,
    "hierarchical": HierarchicalLoss,
}


def any_loss(name: str, **options: Any) -> GlobalLoss:
    return OWN[name](**options) if name in OWN else build_loss(name, **options)

"""Any loss by name: those of embeddings, and those of the models that give more."""

from typing import Any

from vse_core.losses import GlobalLoss, OrthogonalViewsLoss, build_loss
from vse_core.losses.adversarial import AdversarialLoss
from vse_core.losses.hierarchical import HierarchicalLoss
from vse_core.losses.unified import UnifiedLoss

OWN = {
    "vse_c": AdversarialLoss,
    "unified": UnifiedLoss,
    "hierarchical": HierarchicalLoss,
}


def any_loss(name: str, view_orthogonality: float = 0.0, **options: Any) -> GlobalLoss:
    loss = OWN[name](**options) if name in OWN else build_loss(name, **options)
    return OrthogonalViewsLoss(loss, view_orthogonality) if view_orthogonality else loss

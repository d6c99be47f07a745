"""Images of several views: from a loss over one similarity matrix to a loss over K views, and its diagnostics.

Every loss of this package is a function of a matrix (A, C) of similarities of anchors and candidates: one a row is the
pair's, the rest are candidates for negatives. With K views there are several such matrices to choose from, and the
multi-view losses of MV-VSE are this choice.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from vse_core.distributed import all_reduce_sum
from vse_core.losses.global_pairs import IMAGES, Block, GlobalPairs
from vse_core.precision import at_least_float32, full_precision

Pairing = Literal["max", "avg", "up", "low"]
Bound = Literal["max", "avg", "up", "joint"]


def view_matrices(block: Block, pairing: Pairing) -> Tensor:
    """The similarity matrices (M, A, C) that a multi-view loss averages over.

    Args:
        block: similarities of K views.
        pairing: whose similarity stands for the pairs, and whose for the negatives:

            - ``max``: the best view for both, M = 1 (MV-VSE, equation (9));
            - ``avg``: each view for itself, M = K (equation (8));
            - ``up``: the pairs of each view against the negatives of the best view, M = K (equation (10)). Pairs look
              worse and negatives better than they are, so a loss that falls with the former and rises with the latter
              is bounded from above;
            - ``low``: the pairs of the best view against the negatives of each view, M = K (the released journal
              variant); a bound from below.
    """
    best_AC = block.sims_AC
    views_KAC = block.sims_AKC.transpose(0, 1)
    if pairing == "max":
        return best_AC.unsqueeze(0)
    if pairing == "avg":
        return views_KAC
    own_AC = block.own_mask()
    return torch.where(own_AC, views_KAC, best_AC) if pairing == "up" else torch.where(own_AC, best_AC, views_KAC)


def bound_over_views(loss: Callable[[Tensor], Tensor], block: Block, bound: Bound, lam: float) -> Tensor:
    """Rewrite a loss over one similarity matrix for K views (MV-VSE, section 3.3, for losses other than the hinge).

    ``bound`` is ``max``, ``avg`` or ``up`` as in :func:`view_matrices`, or ``joint``: ``lam * max + (1 - lam) * up``
    (equation (15)). The indicators of equations (11) and (12) are 1 for a loss that is never exactly 0.
    """
    if bound == "joint":
        largest, upper = (bound_over_views(loss, block, part, lam) for part in ("max", "up"))
        return lam * largest + (1 - lam) * upper
    return torch.stack([loss(matrix_AC) for matrix_AC in view_matrices(block, bound)]).mean()


def check_bound(bound: str, lam: float, known: tuple[str, ...]) -> None:
    """Refuse an unknown bound, or a weight that is none, by a ValueError that says what there is."""
    if bound not in known:
        raise ValueError(f"bound must be one of {', '.join(known)}, got {bound!r}")
    if not 0 <= lam <= 1:
        raise ValueError(f"lam weighs two bounds against each other and must lie in [0, 1], got {lam}")


@torch.no_grad()
def view_diagnostics(pairs: GlobalPairs) -> dict[str, Tensor]:
    """Return statistics of how K views divide the work (MV-VSE, figure 4): empty for one view.

    ``view_<k>_share`` for k from 1 is the share of the (image, text) pairs whose best view is the k-th; one share near
    1 means that the other views are idle. ``view_similarity`` is the mean cosine between different views of an image.
    """
    if pairs.images.shape[1] == 1:
        return {}
    shares = {name: chosen / len(pairs) ** 2 for name, chosen in pairs.sums(_chosen_views, (IMAGES,)).items()}
    return shares | {"view_similarity": _mean_cosine(pairs.images, len(pairs))}


def _mean_cosine(images_bKD: Tensor, total: int) -> Tensor:
    """Return the mean over the ordered pairs of different views of the images of all processes, ``total`` of them."""
    views = images_bKD.shape[1]
    with full_precision(images_bKD):
        units_bKD = nn.functional.normalize(at_least_float32(images_bKD), dim=-1)
        cosines_bKK = units_bKD @ units_bKD.transpose(1, 2)
    same_KK = torch.eye(views, dtype=torch.bool, device=images_bKD.device)
    return all_reduce_sum(cosines_bKK.masked_fill(same_KK, 0.0).sum()) / (total * views * (views - 1))


def _chosen_views(block: Block) -> dict[str, Tensor]:
    chosen_AC = block.sims_AKC.argmax(dim=1)
    return {f"view_{view + 1}_share": (chosen_AC == view).sum() for view in range(block.sims_AKC.shape[1])}

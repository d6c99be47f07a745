"""Images of several views: from a loss over one similarity matrix to a loss over K views, and its diagnostics.

Every loss of this package is a function of a matrix (B, B) of similarities: the diagonal holds the pairs, the rest the
candidates for negatives. With K views there are several such matrices to choose from, and the multi-view losses of
MV-VSE are this choice.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from vse_core.precision import at_least_float32, full_precision
from vse_core.similarity import best_view, own_pairs

Pairing = Literal["max", "avg", "up", "low"]
Bound = Literal["max", "avg", "up", "joint"]


def view_matrices(sims_BKB: Tensor, pairing: Pairing) -> Tensor:
    """The similarity matrices (M, B, B) that a multi-view loss averages over.

    Args:
        sims_BKB: (B, K, B) similarity of every view of image i and caption j.
        pairing: whose similarity stands for the pairs (the diagonal), and whose for the negatives:

            - ``max``: the best view for both, M = 1 (MV-VSE, equation (9));
            - ``avg``: each view for itself, M = K (equation (8));
            - ``up``: the pairs of each view against the negatives of the best view, M = K (equation (10)). Pairs look
              worse and negatives better than they are, so a loss that falls with the former and rises with the latter
              is bounded from above;
            - ``low``: the pairs of the best view against the negatives of each view, M = K (the released journal
              variant); a bound from below.
    """
    best_BB = best_view(sims_BKB)
    views_KBB = sims_BKB.transpose(0, 1)
    if pairing == "max":
        return best_BB.unsqueeze(0)
    if pairing == "avg":
        return views_KBB
    own_BB = own_pairs(best_BB)
    return torch.where(own_BB, views_KBB, best_BB) if pairing == "up" else torch.where(own_BB, best_BB, views_KBB)


def bound_over_views(loss: Callable[[Tensor], Tensor], sims_BKB: Tensor, bound: Bound, lam: float) -> Tensor:
    """Rewrite a loss over one similarity matrix for K views (MV-VSE, section 3.3, for losses other than the hinge).

    ``bound`` is ``max``, ``avg`` or ``up`` as in :func:`view_matrices`, or ``joint``: ``lam * max + (1 - lam) * up``
    (equation (15)). The indicators of equations (11) and (12) are 1 for a loss that is never exactly 0.
    """
    if bound == "joint":
        return lam * bound_over_views(loss, sims_BKB, "max", lam) + (1 - lam) * bound_over_views(
            loss, sims_BKB, "up", lam
        )
    return torch.stack([loss(matrix_BB) for matrix_BB in view_matrices(sims_BKB, bound)]).mean()


def check_bound(bound: str, lam: float, known: tuple[str, ...]) -> None:
    """Refuse an unknown bound, or a weight that is none, by a ValueError that says what there is."""
    if bound not in known:
        raise ValueError(f"bound must be one of {', '.join(known)}, got {bound!r}")
    if not 0 <= lam <= 1:
        raise ValueError(f"lam weighs two bounds against each other and must lie in [0, 1], got {lam}")


@torch.no_grad()
def view_diagnostics(images_BKD: Tensor, sims_BKC: Tensor) -> dict[str, Tensor]:
    """Return statistics of how K views divide the work (MV-VSE, figure 4): empty for one view.

    ``view_<k>_share`` for k from 1 is the share of the (image, text) pairs whose best view is the k-th; one share near
    1 means that the other views are idle. ``view_similarity`` is the mean cosine between different views of an image.
    """
    views = images_BKD.shape[1]
    if views == 1:
        return {}
    chosen_BC = sims_BKC.argmax(dim=1)
    with full_precision(images_BKD):
        units_BKD = nn.functional.normalize(at_least_float32(images_BKD), dim=-1)
        cosines_BKK = units_BKD @ units_BKD.transpose(1, 2)
    others = cosines_BKK.sum() - cosines_BKK.diagonal(dim1=1, dim2=2).sum()
    shares = {f"view_{view + 1}_share": (chosen_BC == view).float().mean() for view in range(views)}
    return shares | {"view_similarity": others / (len(images_BKD) * views * (views - 1))}

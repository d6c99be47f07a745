"""The loss of HGR: the triplet loss of the three levels' mean similarity."""

from typing import Literal

from torch import Tensor

from vse_core.losses.global_loss import GlobalLoss
from vse_core.losses.hinge import Negatives
from vse_core.losses.levels import level_similarities
from vse_core.losses.result import LossResult, pair_similarities
from vse_core.losses.triplet import TripletLoss
from vse_core.outputs import TextLevels, VideoLevels
from vse_core.similarity import negative_mask


class HierarchicalLoss(GlobalLoss):
    """Push each pair above its negatives, by the mean of event, action and entity similarities (HGR, section 3.3).

    The hinges, arguments and errors are those of :class:`~vse_core.losses.triplet.TripletLoss`. HGR divides by the
    batch (``mean``) and takes the hardest negatives from the first step.
    """

    def __init__(
        self,
        margin: float = 0.2,
        negatives: Negatives = "hardest",
        reduction: Literal["sum", "mean"] = "mean",
        mask_same_image: bool = False,
    ) -> None:
        super().__init__()
        self.triplet = TripletLoss(margin, negatives, reduction, mask_same_image)

    def forward(self, videos: VideoLevels, texts: TextLevels, image_ids_B: Tensor) -> LossResult:
        """Loss of B pairs; row i of the videos and of the captions belong together.

        Its parts are those of the triplet loss, the mean similarity of pairs and of their hardest negatives, and the
        pairs' mean similarity on each level.
        """
        levels_3BB = level_similarities(videos, texts)
        sims_BB = levels_3BB.mean(dim=0)
        negative_BB = negative_mask(image_ids_B, self.triplet.mask_same_image)
        total, parts = self.triplet.total_and_parts(sims_BB.unsqueeze(1), negative_BB, image_ids_B)
        pairs_3 = levels_3BB.diagonal(dim1=1, dim2=2).mean(dim=1)
        parts |= pair_similarities(sims_BB, negative_BB)
        parts |= {f"{level}_similarity": pairs_3[place] for place, level in enumerate(("event", "action", "entity"))}
        return LossResult(total, {name: part.detach() for name, part in parts.items()})

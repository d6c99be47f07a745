"""The base of losses over pairs of embeddings: calling convention, negatives and reported parts."""

from abc import abstractmethod

from torch import Tensor

from vse_core.losses.global_loss import GlobalLoss, LossResult
from vse_core.losses.global_pairs import GlobalPairs, pair_similarities

# The total, and the parts of it that this loss alone reports.
TotalAndParts = tuple[Tensor, dict[str, Tensor]]


class PairLoss(GlobalLoss):
    """A loss over B pairs of an image and a caption, to which the batch's other captions and images are negatives."""

    def __init__(self, mask_same_image: bool = False) -> None:
        super().__init__()
        self.mask_same_image = mask_same_image

    def from_local_batch(self, output: tuple[Tensor, Tensor], image_ids_b: Tensor, counts: list[int]) -> LossResult:
        """Loss of images (b, K, D) and texts (b, D), all of unit length, of which the same rows belong together.

        Its parts are what the loss is made of (see its class), and the mean similarity of pairs and of their hardest
        negatives.
        """
        pairs = GlobalPairs(*output, image_ids_b, counts, self.mask_same_image)
        total, parts = self.total_and_parts(pairs)
        parts |= pair_similarities(pairs)
        return LossResult(total, {name: part.detach() for name, part in parts.items()})

    @abstractmethod
    def total_and_parts(self, pairs: GlobalPairs) -> TotalAndParts:
        """The loss of a global batch, the same on every process."""

"""Training that leaves out views of an image.

b images of this process, K views, D dimensions.
"""

from typing import Any

from torch import Tensor, nn


class ViewDropout(nn.Module):
    """A model in training whose images are compared by some of their views (no paper has it).

    A view that is left out is replaced by one that stays. So the largest similarity is that of the views that stay, for
    any loss; the view left out gets a gradient of zero, and the cosine of the two copies, 1, has none.

    Args:
        trained: gives a tuple that begins with images (b, K, D).
    """

    def __init__(self, trained: nn.Module) -> None:
        super().__init__()
        self.trained = trained

    def forward(self, views_bK: Tensor, *inputs: Any) -> tuple[Any, ...]:
        """Encode the inputs; ``views_bK`` says which view of an image, from 0, is in the place of each."""
        images_bKD, *others = self.trained(*inputs)
        return images_bKD.take_along_dim(views_bK.unsqueeze(2), dim=1), *others

"""Features around the mean of those that the model is trained on."""

import torch
from torch import Tensor, nn


class Center(nn.Module):
    """Subtract a mean that is stored with the model, ``mean_F``; zero until training begins.

    What all images have in common says nothing about any of them, and is a channel by which a text's similarity is the
    same for every image: UniVSE learns in it how often words occur together, instead of looking (docs/faq.md).
    Without `is_used` there is no buffer, and features stay as they are.
    """

    mean_F: Tensor | None

    def __init__(self, feature_dim: int, is_used: bool) -> None:
        super().__init__()
        self.register_buffer("mean_F", torch.zeros(feature_dim) if is_used else None)

    def forward(self, features_BNF: Tensor, mask_BN: Tensor) -> Tensor:
        """Return features (B, N, F) around the mean; padding, which lies outside the mask (B, N), becomes zero."""
        if self.mean_F is None:
            return features_BNF
        return (features_BNF - self.mean_F).masked_fill(~mask_BN.unsqueeze(-1), 0.0)

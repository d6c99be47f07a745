"""Image encoder over precomputed features: a set of region or grid vectors becomes one or K embeddings."""

import torch
from torch import Tensor, nn

from vse_core.encoders.normalize import GlobalBatchNorm, unit_length
from vse_core.pooling.masks import check_lengths, valid_mask


class FeatureEncoder(nn.Module):
    """Project every feature vector, add a residual MLP, pool the set, scale to unit length (VSE-infinity, section 4.1).

    The region encoder of the released code: ``fc`` and ``mlp`` both read the raw features and their outputs add up.
    Grid encoders of the paper leave the MLP out.

    Differs from the released code: batch-norm statistics are taken over real elements only, where the release lets
    the zero rows of padding in; so they depend neither on padding nor on how many processes share the batch.

    Args:
        feature_dim: F, width of the features.
        embed_dim: D, width of the joint space.
        pooling: aggregator called with ``(features_BND, lengths_B)``.
        mlp: add the residual MLP.
    """

    def __init__(self, feature_dim: int, embed_dim: int, pooling: nn.Module, mlp: bool = True) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.fc = nn.Linear(feature_dim, embed_dim)
        nn.init.xavier_uniform_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)
        self.mlp = ResidualMLP(feature_dim, embed_dim) if mlp else None
        self.pooling = pooling

    def forward(self, features_BNF: Tensor, lengths_B: Tensor) -> Tensor:
        """Encode (B, N, F) features with lengths (B,) into (B, 1, D) vectors of unit length."""
        check_lengths(features_BNF, lengths_B)
        mask_BN = valid_mask(features_BNF, lengths_B)
        # Padding is left out before the layers rather than masked after them: less work, and no trace of it anywhere.
        rows_MF = features_BNF[mask_BN].to(self.fc.weight.dtype)
        rows_MD = self.fc(rows_MF)
        if self.mlp is not None:
            rows_MD = rows_MD + self.mlp(rows_MF)
        sets_BND = rows_MD.new_zeros((*mask_BN.shape, rows_MD.shape[-1]))
        sets_BND[mask_BN] = rows_MD
        return unit_length(self.pooling(sets_BND, lengths_B)).unsqueeze(1)


class ResidualMLP(nn.Module):
    """Linear to half the embedding, batch norm, ReLU, linear: the parallel branch of the region encoder."""

    def __init__(self, feature_dim: int, embed_dim: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(feature_dim, embed_dim // 2)
        self.norm = GlobalBatchNorm(embed_dim // 2)
        self.out = nn.Linear(embed_dim // 2, embed_dim)

    def forward(self, rows_MF: Tensor) -> Tensor:
        """Map rows (M, F) to (M, D)."""
        out: Tensor = self.out(torch.relu(self.norm(self.hidden(rows_MF))))
        return out

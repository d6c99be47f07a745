"""Image encoder that keeps the regions: every feature vector in the joint space, and their aggregate (UniVSE)."""

from torch import Tensor, nn

from vse_core.pooling.masks import check_lengths, into_sets, real_rows, valid_mask
from vse_core.products import Linear
from vse_core.similarity import unit_length


class RegionEncoder(nn.Module):
    """Regions by a 1x1 convolution without a bias, and the image by pooling them (UniVSE, section 3.3).

    The convolution of a grid is one linear layer for each of its cells, so the features may as well be those of
    detected regions. The aggregate is taken of the layer's outputs, not of the regions' unit vectors.
    """

    def __init__(self, feature_dim: int, embed_dim: int, pooling: nn.Module) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.projection = Linear(feature_dim, embed_dim, bias=False)
        nn.init.xavier_uniform_(self.projection.weight)
        self.pooling = pooling

    def forward(self, features_BNF: Tensor, lengths_B: Tensor) -> Tensor:
        """Encode (B, N, F) features with lengths (B,) into (B, 1, D) vectors of unit length."""
        return self.images_and_regions(features_BNF, lengths_B)[0]

    def regions(self, features_BNF: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the regions' unit vectors (B, N, D), zero for padding, and the mask (B, N) of real regions."""
        _, regions_BND, mask_BN = self.images_and_regions(features_BNF, lengths_B)
        return regions_BND, mask_BN

    def images_and_regions(self, features_BNF: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the results of :meth:`forward` and :meth:`regions` by one projection."""
        check_lengths(features_BNF, lengths_B)
        mask_BN = valid_mask(features_BNF, lengths_B)
        rows_MD = self.projection(real_rows(features_BNF, mask_BN).to(self.projection.weight.dtype))
        images_BD = unit_length(self.pooling(into_sets(rows_MD, mask_BN), lengths_B))
        return images_BD.unsqueeze(1), into_sets(unit_length(rows_MD), mask_BN), mask_BN

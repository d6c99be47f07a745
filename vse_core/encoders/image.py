"""Image encoders over precomputed features: sets of region or grid vectors become embeddings, UniVSE's regions too."""

from typing import Literal

import torch
from torch import Tensor, nn

from vse_core.distributed import all_reduce_sum, world_size
from vse_core.pooling.masks import check_lengths, into_sets, real_rows, valid_mask
from vse_core.precision import at_least_float32, product_type
from vse_core.products import Linear
from vse_core.similarity import unit_length
from vse_core.static_shapes import has_static_shapes


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


class FeatureEncoder(nn.Module):
    """Project every feature vector, add a residual MLP, pool the set, scale to unit length (VSE-infinity, section 4.1).

    The region encoder of the released code: ``fc`` and ``mlp`` both read the raw features and their outputs add up.
    Grid encoders of the paper leave the MLP out.

    Differs from the released code: batch-norm statistics are by default taken over valid positions only, where the
    release lets the zero rows of padding in; so they depend neither on padding nor on how many processes share the
    batch. ``norm_rows="padded"`` does as the release.

    Args:
        feature_dim: F, width of the features.
        embed_dim: D, width of the joint space.
        pooling: aggregator of the set into one vector (B, D), or K of them (B, K, D).
        mlp: add the residual MLP.
        norm_rows: rows that the MLP's batch norm takes its statistics from in training.
        projections: K linear layers instead of one, without an MLP, each a view by the same aggregator, which must
            treat every dimension alike (``max``, ``mean``, ``kmax``, ``gpo``): the released MV-VSE code, not the paper.
        dropout: share of the projected values that training leaves out (0.2 in HGR's code, over which VSE-infinity ran
            its video experiments).

    Raises:
        ValueError: ``norm_rows`` is ``padded`` without an MLP, or there is an MLP with several projections.
    """

    def __init__(
        self,
        feature_dim: int,
        embed_dim: int,
        pooling: nn.Module,
        mlp: bool = True,
        norm_rows: Literal["real", "padded"] = "real",
        projections: int = 1,
        dropout: float = 0.0,
        center: bool = False,
    ) -> None:
        super().__init__()
        if norm_rows == "padded" and not mlp:
            raise ValueError("norm_rows='padded' has no effect without the MLP, which holds the batch norm")
        if projections < 1 or (projections > 1 and mlp):
            raise ValueError(f"projections must be at least 1, and 1 with the MLP; got {projections} with mlp={mlp}")
        self.feature_dim = feature_dim
        self.center = Center(feature_dim, center)
        self.projections = projections
        self.fc = Linear(feature_dim, projections * embed_dim)
        for weight_DF in self.fc.weight.chunk(projections):
            nn.init.xavier_uniform_(weight_DF)
        nn.init.zeros_(self.fc.bias)
        self.mlp = ResidualMLP(feature_dim, embed_dim) if mlp else None
        self.norm_rows = norm_rows
        self.reads_padding = norm_rows == "padded"
        self.dropout = nn.Dropout(dropout)
        self.pooling = pooling

    def forward(self, features_BNF: Tensor, lengths_B: Tensor) -> Tensor:
        """Encode (B, N, F) features with lengths (B,) into (B, K, D) vectors of unit length."""
        sets_BND, _ = self._project(features_BNF, lengths_B)
        pooled = self.pooling(sets_BND, lengths_B)
        return unit_length(pooled if pooled.dim() == 3 else pooled.unflatten(1, (self.projections, -1)))

    def regions(self, features_BNF: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return unit vectors (B, P, N, D) of the elements by each of P projections, and the mask of real elements."""
        sets_BND, mask_BN = self._project(features_BNF, lengths_B)
        return unit_length(sets_BND.unflatten(2, (self.projections, -1)).transpose(1, 2)), mask_BN

    def _project(self, features_BNF: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """The sets in the joint space, projections side by side, and the mask of their real elements."""
        check_lengths(features_BNF, lengths_B)
        mask_BN = valid_mask(features_BNF, lengths_B)
        # Autocast would convert them once for each layer that reads them.
        row_type = product_type(features_BNF, self.fc.weight.dtype)
        rows_MF = real_rows(self.center(features_BNF, mask_BN), mask_BN).to(row_type)
        rows_MD = self.fc(rows_MF)
        if self.mlp is not None:
            # How many rows of zeros the statistics miss, and which of the rows they count, None for all.
            padding = mask_BN.numel() - rows_MF.shape[0] if self.training and self.norm_rows == "padded" else 0
            counted_M = mask_BN.flatten() if self.norm_rows == "real" and has_static_shapes(rows_MF) else None
            rows_MD = rows_MD + self.mlp(rows_MF, padding, counted_M)
        return into_sets(self.dropout(rows_MD), mask_BN), mask_BN


class ResidualMLP(nn.Module):
    """Linear to half the embedding, batch norm, ReLU, linear: the parallel branch of the region encoder."""

    def __init__(self, feature_dim: int, embed_dim: int) -> None:
        super().__init__()
        self.hidden = Linear(feature_dim, embed_dim // 2)
        self.norm = GlobalBatchNorm(embed_dim // 2)
        self.out = Linear(embed_dim // 2, embed_dim)

    def forward(self, rows_MF: Tensor, padding: int = 0, counted_M: Tensor | None = None) -> Tensor:
        """Map rows (M, F) to (M, D).

        In the statistics of the batch norm ``padding`` rows of zeros join, and rows that do not count are left out.
        """
        hidden_MH = self.hidden(rows_MF)
        if padding:  # a row of zeros leaves the linear layer as its bias
            padded_PH = self.hidden.bias.to(hidden_MH.dtype).expand(padding, -1)
            normed_MH = self.norm(torch.cat((hidden_MH, padded_PH)), counted_M)[: len(hidden_MH)]
        else:
            normed_MH = self.norm(hidden_MH, counted_M)
        out: Tensor = self.out(torch.relu(normed_MH))
        return out


class GlobalBatchNorm(nn.BatchNorm1d):
    """Batch normalisation of rows (M, F) whose statistics span all processes, on CPUs and GPUs alike.

    The result for the global batch does not depend on how many processes share it, which
    ``torch.nn.SyncBatchNorm`` gives on GPUs only.
    """

    momentum: float
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def forward(self, rows_MF: Tensor, counted_M: Tensor | None = None) -> Tensor:
        """Normalise rows (M, F); in training with the statistics of all processes' rows, else with the running ones.

        A mask says which rows the statistics count, by default all.
        """
        if not self.training or (world_size() == 1 and counted_M is None):
            return super().forward(rows_MF)
        values_MF = at_least_float32(rows_MF)
        # One for each row that counts, zero for the others.
        ones_M1 = values_MF.new_ones(len(rows_MF), 1) if counted_M is None else counted_M.unsqueeze(1)
        count = all_reduce_sum(ones_M1.sum(dim=0))
        mean_F = all_reduce_sum((ones_M1 * values_MF).sum(dim=0)) / count
        centered_MF = values_MF - mean_F
        # A second pass instead of E[x^2] - E[x]^2, which cancels in float32.
        squares_F = all_reduce_sum((ones_M1 * centered_MF.square()).sum(dim=0))
        variance_F = squares_F / count
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean_F, self.momentum)
            self.running_var.lerp_(squares_F / (count - 1), self.momentum)
        scale_F = self.weight * (variance_F + self.eps).rsqrt()
        return (centered_MF * scale_F + self.bias).to(rows_MF.dtype)


class RegionEncoder(nn.Module):
    """Regions by a 1x1 convolution without a bias, and the image by pooling them (UniVSE, section 3.3).

    The convolution of a grid is one linear layer for each of its cells, so the features may as well be those of
    detected regions. The aggregate is taken of the layer's outputs, not of the regions' unit vectors. With ``center``
    the mean of the training features is subtracted first (:class:`Center`; not in the paper), with
    ``center="regions"`` from the regions alone: the largest values of features around zero are above zero in every
    dimension, a direction that all images would share, with no bias to take it back.
    """

    def __init__(
        self, feature_dim: int, embed_dim: int, pooling: nn.Module, center: bool | Literal["regions"] = False
    ) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.center = Center(feature_dim, bool(center))
        self.centers_regions_alone = center == "regions"
        self.projection = Linear(feature_dim, embed_dim, bias=False)
        nn.init.xavier_uniform_(self.projection.weight)
        self.pooling = pooling

    def forward(self, features_BNF: Tensor, lengths_B: Tensor) -> Tensor:
        """Encode (B, N, F) features with lengths (B,) into (B, 1, D) vectors of unit length."""
        return self.images_and_regions(features_BNF, lengths_B)[0]

    def regions(self, features_BNF: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the regions' unit vectors (B, N, D) and the mask (B, N) of real ones, as FeatureEncoder's."""
        return self.images_and_regions(features_BNF, lengths_B)[1:]

    def images_and_regions(self, features_BNF: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the images, the regions' unit vectors (B, N, D), and the mask (B, N) of real ones."""
        check_lengths(features_BNF, lengths_B)
        mask_BN = valid_mask(features_BNF, lengths_B)
        features_BNF = self.center(features_BNF, mask_BN)
        rows_MD = self.projection(real_rows(features_BNF, mask_BN).to(self.projection.weight.dtype))
        pooled_MD = rows_MD
        if self.centers_regions_alone and self.center.mean_F is not None:
            # The layer is linear: of the features as they are.
            pooled_MD = rows_MD + self.projection(self.center.mean_F)
        images_BD = unit_length(self.pooling(into_sets(pooled_MD, mask_BN), lengths_B))
        return images_BD.unsqueeze(1), into_sets(unit_length(rows_MD), mask_BN), mask_BN

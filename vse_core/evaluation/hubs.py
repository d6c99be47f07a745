"""Hub correction: items that are near every query lose what they are to a bank of typical queries.

B images, C captions, K views, D embedding, M queries of the bank with V views.
"""

import torch
from torch import Tensor, nn

from vse_core.evaluation.nearest import best_pair_similarities

# Similarities that are held at once; 64 MiB in float32.
_BLOCK_ELEMENTS = 2**24


def hub_bias(items_BKD: Tensor, bank_MVD: Tensor, temperature: float) -> Tensor:
    """Return what to subtract from every similarity with each item (B,): ``tau * logsumexp_m(s(m, item) / tau)``.

    The bank is what queries look like: captions of the training split for images, its images for captions. Similarity
    is that of the best pair of views, so that one number corrects all views of an item.

    This is the inverted softmax (Smith et al., ICLR 2017) as one number for each item, as in QB-Norm (Bogolin et al.,
    CVPR 2022), with the logarithm taken.
    """
    bank_MVD = bank_MVD.float()
    pairs = max(1, bank_MVD.shape[0] * bank_MVD.shape[1] * items_BKD.shape[1])
    blocks = items_BKD.split(max(1, _BLOCK_ELEMENTS // pairs))
    biases = [(best_pair_similarities(block, bank_MVD) / temperature).logsumexp(dim=1) for block in blocks]
    return temperature * torch.cat(biases)


def with_bias(items_BKD: Tensor, bias_B: Tensor) -> Tensor:
    """Return items (B, K, D + 1) whose inner product with `with_one` of a query is the corrected similarity."""
    return torch.cat([items_BKD.float(), -bias_B.view(-1, 1, 1).expand(-1, items_BKD.shape[1], 1)], dim=2)


def with_one(queries_QVD: Tensor, is_corrected: bool = True) -> Tensor:
    """Return queries (Q, V, D + 1) for items of `with_bias`; not corrected, they are compared by the cosine."""
    return nn.functional.pad(queries_QVD.float(), (0, 1), value=float(is_corrected))


def corrected(
    images_BKD: Tensor, texts_CD: Tensor, images_bias_B: Tensor, texts_bias_C: Tensor
) -> tuple[Tensor, Tensor]:
    """Return images (B, K, D + 2) and captions (C, D + 2) that are ranked with the correction of both directions.

    Their similarity is ``s - b_image - b_caption``: for an image's query the first bias is the same for all captions,
    for a caption's the second is the same for all images.
    """
    images = with_one(with_bias(images_BKD, images_bias_B))
    texts = with_one(texts_CD.unsqueeze(1))[:, 0]
    return images, torch.cat([texts, -texts_bias_C.unsqueeze(1)], dim=1)

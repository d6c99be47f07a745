"""Image-to-text retrieval under attack: adversarial captions compete with the true ones."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from vse_core.evaluation.ranks import RelevantItems, nan_as_worst, rank_queries
from vse_core.evaluation.recall import DirectionMetrics, checked_counts, direction_metrics
from vse_core.similarity import similarity_matrix

# B images, C true captions, A adversarial ones, K views, D embedding; b images of a chunk, a adversarial of its images.

# Whose adversarial captions an image meets: all images' (UniVSE, section 4.2), or those of its own captions (VSE-C).
AttackProtocol = Literal["shared", "own"]


def evaluate_attack(
    images_BKD: Tensor,
    texts_CD: Tensor,
    captions_per_image: int | Sequence[int],
    adversarial_AD: Tensor,
    adversarials_per_caption: int | Sequence[int] = 5,
    protocol: AttackProtocol = "shared",
) -> DirectionMetrics:
    """Rank true and adversarial captions together for every image; `recall_sum` is a column of UniVSE's table 2.

    Every image ranks all true captions, and the adversarials of all (`shared`; UniVSE, section 4.2) or of its own
    (`own`; VSE-C); the rank is that of its best caption. A tie with an adversarial counts against the model: one that
    overlooks the replaced word gains nothing.

    ``adversarial_AD`` are unit vectors, the adversarials of caption 0 first, then those of caption 1, and so on;
    ``adversarials_per_caption`` is one number for all captions or one for each, and may be 0. The other arguments are
    explained at `evaluate_retrieval`; numbers that do not fit are a ValueError.
    """
    images_BKD = images_BKD.unsqueeze(1) if images_BKD.dim() == 2 else images_BKD
    counts_B = checked_counts(len(images_BKD), len(texts_CD), captions_per_image)
    names = ("captions", "adversarial captions", "adversarials_per_caption")
    attacks_C = checked_counts(len(texts_CD), len(adversarial_AD), adversarials_per_caption, names, fewest=0)
    image_of_C = torch.repeat_interleave(torch.arange(len(counts_B)), counts_B)
    image_of_A = torch.repeat_interleave(image_of_C, attacks_C)

    def similarities(run: slice) -> Tensor:
        """Similarities of a run of images, -inf with adversarial captions that it does not meet."""
        met = slice(None)
        if protocol == "own":
            met = slice(*torch.searchsorted(image_of_A, torch.tensor([run.start, run.stop])).tolist())
        # Compared in one product: two of different widths may round the same pair of vectors differently, and an
        # adversarial with the embedding of its caption would no longer tie with it.
        sims_bN = nan_as_worst(similarity_matrix(images_BKD[run], torch.cat([texts_CD, adversarial_AD[met]])))
        if protocol == "own":
            foreign_ba = image_of_A[met] != torch.arange(run.start, run.stop).unsqueeze(1)
            sims_bN[:, len(texts_CD) :].masked_fill_(foreign_ba, -torch.inf)
        return sims_bN

    own_captions = RelevantItems.of_pairs(image_of_C, torch.arange(len(texts_CD)), len(images_BKD))
    ranks = rank_queries(similarities, own_captions, len(texts_CD) + len(adversarial_AD), images_BKD.shape[1])
    return direction_metrics(ranks)

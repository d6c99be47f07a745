"""Image-to-text retrieval under attack: adversarial captions compete with the true ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from vse_core.evaluation.ranks import RelevantItems, nan_as_worst, rank_queries
from vse_core.evaluation.recall import DirectionMetrics, caption_counts, direction_metrics
from vse_core.similarity import similarity_matrix

# B images, C true captions, A adversarial ones, K views, D embedding; b images of a chunk, a adversarial of its images.

# Whose adversarial captions an image meets: all images' (UniVSE, section 4.2), or those of its own captions (VSE-C).
AttackProtocol = Literal["shared", "own"]


@dataclass(frozen=True)
class AttackResult:
    """Image-to-text retrieval against adversarial captions, and the numbers of images, true and adversarial captions.

    `image_to_text.recall_sum` is a column "rsum" of UniVSE's table 2; `protocol` is whose adversarial captions each
    image met.
    """

    image_to_text: DirectionMetrics
    protocol: AttackProtocol
    images: int
    captions: int
    adversarials: int

    def as_dict(self) -> dict[str, float]:
        """Flat names and values: ``recall_sum``, ``r01`` ... ``ties``."""
        return {"recall_sum": self.image_to_text.recall_sum, **vars(self.image_to_text)}


def evaluate_attack(
    images_BKD: Tensor,
    texts_CD: Tensor,
    captions_per_image: int | Sequence[int],
    adversarial_AD: Tensor,
    adversarials_per_caption: int | Sequence[int] = 5,
    protocol: AttackProtocol = "shared",
) -> AttackResult:
    """Rank true and adversarial captions together for every image.

    An adversarial caption is a true one with a word replaced or added so that it no longer describes its image. Under
    `shared` every image ranks all true captions and all adversarial ones (UniVSE, section 4.2: 1,000 images with five
    captions of five adversarials each make 30,000 candidates); under `own` it ranks all true captions and only the
    adversarials of its own captions (VSE-C). Either way the rank is that of the image's best caption.

    A tie with an adversarial counts against the model: one that overlooks the replaced word gains nothing. Without
    adversarials the result is that of `evaluate_retrieval`, where images, texts and their numbers are explained.

    ``adversarial_AD`` are unit vectors, the adversarials of caption 0 first, then those of caption 1, and so on;
    ``adversarials_per_caption`` is one number for all captions or one for each, and may be 0.

    Raises:
        ValueError: the numbers of images, captions and adversarials do not fit, or the protocol is unknown.
    """
    if protocol not in get_args(AttackProtocol):
        raise ValueError(f"unknown protocol {protocol!r}; use one of {', '.join(get_args(AttackProtocol))}")
    images_BKD = images_BKD.unsqueeze(1) if images_BKD.dim() == 2 else images_BKD
    counts_B = caption_counts(len(images_BKD), len(texts_CD), captions_per_image)
    attacks_C = _adversarial_counts(len(texts_CD), len(adversarial_AD), adversarials_per_caption)
    image_of_C = torch.repeat_interleave(torch.arange(len(counts_B)), counts_B)
    image_of_A = torch.repeat_interleave(image_of_C, attacks_C)
    if protocol == "shared":
        similarities = _shared_similarities(images_BKD, texts_CD, adversarial_AD)
    else:
        similarities = _own_similarities(images_BKD, texts_CD, adversarial_AD, image_of_A)
    own_captions = RelevantItems.of_pairs(image_of_C, torch.arange(len(texts_CD)), len(images_BKD))
    ranks = rank_queries(similarities, own_captions, len(texts_CD) + len(adversarial_AD), images_BKD.shape[1])
    return AttackResult(direction_metrics(ranks), protocol, len(images_BKD), len(texts_CD), len(adversarial_AD))


def _adversarial_counts(captions: int, adversarials: int, adversarials_per_caption: int | Sequence[int]) -> Tensor:
    if isinstance(adversarials_per_caption, int):
        adversarials_per_caption = [adversarials_per_caption] * captions
    counts_C = torch.as_tensor(adversarials_per_caption, dtype=torch.long)
    if len(counts_C) != captions or int(counts_C.sum()) != adversarials or int(counts_C.min()) < 0:
        raise ValueError(
            f"{adversarials} adversarial captions of {captions} captions do not fit adversarials_per_caption "
            f"({len(counts_C)} counts, {int(counts_C.sum())} adversarials in all; none may be negative)"
        )
    return counts_C


def _shared_similarities(images_BKD: Tensor, texts_CD: Tensor, adversarial_AD: Tensor) -> Callable[[slice], Tensor]:
    """Return a function of a run of images to their similarities with all true and all adversarial captions."""
    candidates_ND = _candidates(texts_CD, adversarial_AD)
    return lambda run: nan_as_worst(similarity_matrix(images_BKD[run], candidates_ND))


def _own_similarities(
    images_BKD: Tensor, texts_CD: Tensor, adversarial_AD: Tensor, image_of_A: Tensor
) -> Callable[[slice], Tensor]:
    """Return a function of a run of images to their similarities with all true and their own adversarial captions."""

    def similarities(run: slice) -> Tensor:
        """Those of others' adversarial captions are -inf: they are in no gallery but their own image's."""
        here = slice(*torch.searchsorted(image_of_A, torch.tensor([run.start, run.stop])).tolist())
        sims_bN = nan_as_worst(similarity_matrix(images_BKD[run], _candidates(texts_CD, adversarial_AD[here])))
        foreign_ba = image_of_A[here] != torch.arange(run.start, run.stop).unsqueeze(1)
        sims_bN[:, len(texts_CD) :].masked_fill_(foreign_ba, -torch.inf)
        return sims_bN

    return similarities


def _candidates(texts_CD: Tensor, adversarial_aD: Tensor) -> Tensor:
    # Compared in one product: two products of different widths may round the same pair of vectors differently, and an
    # adversarial with the embedding of its caption would no longer tie with it.
    return torch.cat([texts_CD, adversarial_aD])

"""Hub correction of the leaderboard's rows: the vectors of a run, and each image's part of RSUM with and without it.

B images, C captions, K views, D embedding, M items of the bank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from leaderboard import LEADERBOARD, Board, Parts, interval
from torch import Tensor

from pipelines.evaluation.hub_correction import TEMPERATURES
from pipelines.retrieval.correction import MOST
from vse_core.evaluation.calibration import calibrate
from vse_core.evaluation.hubs import hub_bias
from vse_core.similarity import similarity_matrix

# Each image's part of RSUM with the correction, and without it under the row's name with this ending.
PARTS, BEFORE = Board("hubs", {}, ()), ", uncorrected"


@dataclass(frozen=True)
class Vectors:
    """Unit vectors of the development split, and of all images (M, K, D) and captions (M, D) of the training split.

    `counts` are the captions of each image; `temperature` is 0 if training has learned none.
    """

    images_BKD: Tensor
    texts_CD: Tensor
    bank_images_MKD: Tensor
    bank_texts_MD: Tensor
    counts: Sequence[int]
    temperature: float = 0.0

    @property
    def owners_C(self) -> Tensor:  # noqa: N802 (a letter a dimension)
        """The image of each caption."""
        return torch.arange(len(self.counts)).repeat_interleave(torch.tensor(self.counts))

    def sampled(self, captions: int) -> Vectors:
        """Return them with a bank of this many captions, and no more images; drawn evenly."""
        images_MKD, texts_MD = self.bank_images_MKD, self.bank_texts_MD
        drawn = np.sort(np.random.default_rng(0).permutation(len(texts_MD))[:captions])
        images = np.sort(np.random.default_rng(0).permutation(len(images_MKD))[:captions])
        return replace(self, bank_images_MKD=images_MKD[images], bank_texts_MD=texts_MD[drawn])

    def biases(self, temperature: float) -> tuple[Tensor, Tensor]:
        """Return what is subtracted from the similarities of images (B,) and of captions (C,)."""
        return (
            hub_bias(self.images_BKD, self.bank_texts_MD.unsqueeze(1), temperature),
            hub_bias(self.texts_CD.unsqueeze(1), self.bank_images_MKD, temperature),
        )

    def parts(self, of_images_B: Tensor | float = 0.0, of_captions_C: Tensor | float = 0.0) -> Parts:
        """Return each image's part of RSUM, with biases of images, of captions or of both."""
        sims_BC = similarity_matrix(self.images_BKD, self.texts_CD)
        to_images_BC = sims_BC - (of_images_B.unsqueeze(1) if isinstance(of_images_B, Tensor) else of_images_B)
        return parts_of_similarities(sims_BC - of_captions_C, to_images_BC, self.owners_C)

    def chosen_temperature(self) -> float:
        """Return the learned temperature, or the one of the highest corrected RSUM."""
        return self.temperature or max(TEMPERATURES, key=lambda each: self.parts(*self.biases(each)).sum())


def parts_of_similarities(to_captions_BC: Tensor, to_images_BC: Tensor, owners_C: Tensor) -> Parts:
    """Return what each image and its captions add to RSUM, by the scores of either direction."""
    own_BC = owners_C == torch.arange(len(to_captions_BC)).unsqueeze(1)
    best_B = to_captions_BC.masked_fill(~own_BC, -torch.inf).amax(dim=1, keepdim=True)
    of_images_B = (to_captions_BC.masked_fill(own_BC, -torch.inf) >= best_B).sum(dim=1)
    own_C = to_images_BC[owners_C, torch.arange(len(owners_C))]
    of_captions_C = (to_images_BC.masked_fill(own_BC, -torch.inf) >= own_C).sum(dim=0)
    hits_B, hits_C = (
        torch.stack([100.0 * (ranks < k) for k in (1, 5, 10)]).sum(dim=0) for ranks in (of_images_B, of_captions_C)
    )
    parts_B = hits_B / len(hits_B)
    parts: Parts = parts_B.index_add(0, owners_C, hits_C / len(hits_C)).double().numpy()
    return parts


def gain(after: Parts, before: Parts) -> list[float]:
    """Return the difference of RSUM, and its paired interval over images."""
    return [round(float((after - before).sum()), 1), *interval(after - before)]


def figures(vectors: Vectors) -> tuple[dict[str, Any], Parts, Parts]:
    """Return the correction of a run, and each image's part of RSUM without and with it.

    It is the pipeline's for one model. Several, whose vectors are joined, are corrected as one, while the pipeline
    averages their corrected similarities.
    """
    bank = vectors.sampled(MOST)
    temperature = bank.chosen_temperature()
    biases = bank.biases(temperature)
    before, after = vectors.parts(), vectors.parts(*biases)
    found = {
        "temperature": round(temperature, 4),
        "source": "learned" if vectors.temperature else "chosen on dev",
        "rsum": round(float(before.sum()), 1),
        "rsum_corrected": round(float(after.sum()), 1),
        "gain": gain(after, before),
        "calibration_error": _errors(vectors, *biases),
    }
    return found, before, after


def _errors(vectors: Vectors, of_images_B: Tensor, of_captions_C: Tensor) -> dict[str, float]:
    sims_BC = similarity_matrix(vectors.images_BKD, vectors.texts_CD)
    owner_C, owner_B = vectors.owners_C, torch.arange(len(sims_BC))
    captions = len(owner_C) / len(owner_B)
    i2t = calibrate(sims_BC - of_captions_C, owner_B.unsqueeze(1) == owner_C, owner_B, captions)
    t2i = calibrate(sims_BC.T - of_images_B, owner_C.unsqueeze(1) == owner_B, owner_C, 1)
    return {"i2t": round(i2t.error, 4), "t2i": round(t2i.error, 4)}


def keep_both(features: str, row: str, seed: int, vectors: Vectors) -> dict[str, Any]:
    """Return the figures of a run, and keep its parts of RSUM, without and with the correction."""
    found, before, after = figures(vectors)
    PARTS.keep_parts(features, f"{row}{BEFORE}", seed, before)
    PARTS.keep_parts(features, row, seed, after)
    return found


def summarized(features: str) -> dict[str, Any]:
    """Return of each row the means of RSUM without and with the correction, its gain, and its lead of a linear CCA."""
    parts = PARTS.parts_by_row(features)
    means = {row: np.mean(of_seeds, axis=0) for row, of_seeds in parts.items()}
    floors = {row: means[row] for row in LEADERBOARD.compared if row.startswith("linear") and row in means}
    return {
        row: {
            "seeds": len(parts[row]),
            "rsum": round(float(means[f"{row}{BEFORE}"].sum()), 1),
            "rsum_corrected": round(float(mean.sum()), 1),
            "interval": interval(mean),
            "gain": gain(mean, means[f"{row}{BEFORE}"]),
            "over": {name: gain(mean, floor) for name, floor in floors.items() if name != row},
        }
        for row, mean in means.items()
        if not row.endswith(BEFORE)
    }

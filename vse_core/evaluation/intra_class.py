"""Similarity of the captions of one image, compared with captions of different images.

C captions, D embedding, P pairs.
"""

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from vse_core.evaluation.plots import OKABE_ITO, figure_with_axes

_BINS = 60


def caption_similarities(texts_CD: Tensor, image_of_C: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines of pairs of captions, image after image: of the same image, and, one with the next, of different ones.

    The first are all pairs, each once (P,); the others, for each caption, that with the caption half the data set
    further on, if that is of another image.
    """
    texts_CD = texts_CD.float()
    _, counts = torch.unique_consecutive(image_of_C, return_counts=True)
    same = []
    for block_cD in texts_CD.split(counts.tolist()):
        above = torch.triu_indices(len(block_cD), len(block_cD), offset=1)
        same.append((block_cD @ block_cD.T)[above[0], above[1]])
    partner_C = torch.arange(len(texts_CD)).roll(-(len(texts_CD) // 2))
    differs_C = image_of_C != image_of_C[partner_C]
    other = (texts_CD * texts_CD[partner_C]).sum(dim=1)[differs_C]
    return torch.cat(same), other


def plot_caption_similarity(same_P: Tensor, other_P: Tensor, title: str) -> Figure:
    """Plot the distribution of the similarity of captions of one image (MV-VSE, figure 2): two densities and means.

    Differs from the paper, which has no captions of different images to compare with. The cosines are those of
    `caption_similarities`; no pair of one image is a ValueError.
    """
    if not len(same_P):
        raise ValueError("no image has two captions: there is no similarity within images to plot")
    figure, axes = figure_with_axes(7.5, 4.2)
    filled: dict[str, Any] = {"color": OKABE_ITO["blue"], "alpha": 0.75}
    step: dict[str, Any] = {"color": OKABE_ITO["vermillion"], "histtype": "step", "linewidth": 1.8}
    kinds = [(same_P, "of one image", filled), (other_P, "of different images", step)]
    lowest = max(-1.0, float(torch.cat([same_P, other_P]).min()) - 0.01)
    edges = np.linspace(lowest, 1.0, _BINS + 1).tolist()
    for values, name, style in kinds[: 2 if len(other_P) else 1]:
        shares = np.full(len(values), 100 / len(values))
        label = f"{name}: mean {float(values.mean()):.2f}, {len(values):,} pairs"
        axes.hist(values.clamp(max=1.0).numpy(), bins=edges, weights=shares, label=label, **style)
    axes.set(xlim=(lowest, 1.0), xlabel="cosine of two captions", ylabel="pairs (%)", title=title)
    axes.legend(frameon=False, fontsize=9)
    return figure

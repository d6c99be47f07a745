"""What MV-VSE plots: similarities of an image's captions, diversity of its views, and the captions that choose these.

B images, C captions, P pairs of captions, K views, D embedding, M models.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vse_core.evaluation.plots import GREY, OKABE_ITO, figure_with_axes, tidy

# Bars of views differ in their hatching as well as in their colours.
_COLOURS = ("blue", "orange", "green", "purple", "sky", "vermillion")
_HATCHES = ("", "//", "..", "xx", "\\\\", "++")
_MOST_COLUMNS = 4
_BINS = 60


def chosen_views(images_BKD: Tensor, texts_CD: Tensor, image_of_C: Tensor) -> Tensor:
    """Return the view, from 0, of its own image that each caption is nearest to (the maximum, MV-VSE, equation (6))."""
    own_CKD = images_BKD.float()[image_of_C]
    return torch.einsum("ckd,cd->ck", own_CKD, texts_CD.float()).argmax(dim=1)


def view_similarity(images_BKD: Tensor) -> float:
    """The cosine of two different views of an image, averaged over all pairs of views and images; K > 1."""
    views = images_BKD.shape[1]
    if views < 2:
        raise ValueError("the similarity of views needs images of two views at least; these have one")
    cosines_BKK = torch.einsum("bkd,bjd->bkj", images_BKD.float(), images_BKD.float())
    # Every pair stands there twice, and every view with itself at a cosine of 1.
    sums_B = cosines_BKK.sum(dim=(1, 2)) - cosines_BKK.diagonal(dim1=1, dim2=2).sum(dim=1)
    return float(sums_B.mean() / (views * (views - 1)))


@dataclass(frozen=True)
class ViewSummary:
    """One model's entry in the figure.

    It has the weight of the nearest view's loss, lambda, if any, the shares of captions that choose each of its K
    views, and the similarity of these (`view_similarity`), None for a single view.
    """

    name: str
    lam: float | None
    shares: Sequence[float]
    similarity: float | None
    rsum: float


def plot_view_diversity(models: Sequence[ViewSummary], shown: Sequence[ViewSummary]) -> Figure:
    """Plot which views captions choose, and RSUM and the views' similarity over lambda and over K (MV-VSE, figure 4).

    Panels (a) and (b) of the paper, over the number of views and over lambda, are drawn of the most models that differ
    in it alone, if there are two at least; (c) and (d), the choice of views, of those ``shown``.
    """
    over_views = [(len(model.shares), model.lam, model) for model in models]
    several = [model for model in models if model.similarity is not None]
    over_lambda = [(model.lam, len(model.shares), model) for model in several if model.lam is not None]
    curves = [
        ("number of views K", _longest(over_views), False),
        ("λ: 0 = upper bound over all views, 1 = nearest view alone", _longest(over_lambda), True),
    ]
    curves = [curve for curve in curves if curve[1]]
    count = len(shown) + sum(2 if similar else 1 for _, _, similar in curves)
    rows = -(-count // _MOST_COLUMNS)
    columns = -(-count // rows)
    figure = Figure(figsize=(3.9 * columns, 3.5 * rows), layout="constrained")
    panels = iter(figure.subplots(rows, columns, squeeze=False).flat)
    for label, points, has_similarity in curves:
        _draw_curve(next(panels), label, [(x, model.rsum) for x, model in points], "RSUM (%, of 600)", "blue", "o")
        if has_similarity:
            similarities = [(x, model.similarity) for x, model in points]
            _draw_curve(next(panels), label, similarities, "mean cosine of two views", "vermillion", "s")
    for model in shown:
        _draw_shares(next(panels), model)
    for axes in panels:
        axes.remove()
    return figure


def _longest(placed: Sequence[tuple[float, float | None, ViewSummary]]) -> list[tuple[float, ViewSummary]]:
    """Return the points of the models that share the second number and differ in the first; none if there are no two.

    Of several such groups the largest is taken, and of these the one with the best model.
    """
    groups: dict[float | None, list[tuple[float, ViewSummary]]] = {}
    for x, shared, model in placed:
        groups.setdefault(shared, []).append((x, model))
    curves = [points for points in groups.values() if len({x for x, _ in points}) == len(points) > 1]
    longest = max(curves, key=lambda points: (len(points), max(model.rsum for _, model in points)), default=[])
    return sorted(longest, key=itemgetter(0))


def _draw_curve(axes: Axes, label: str, points: Sequence[Any], quantity: str, colour: str, marker: str) -> None:
    tidy(axes)
    style: dict[str, Any] = {"color": OKABE_ITO[colour], "marker": marker, "markersize": 6, "linewidth": 1.8}
    axes.plot([x for x, _ in points], [y for _, y in points], **style)
    axes.set_xticks([x for x, _ in points])
    axes.set_xlabel(label, fontsize=9)
    axes.set_ylabel(quantity)


def _draw_shares(axes: Axes, model: ViewSummary) -> None:
    tidy(axes)
    axes.grid(visible=False, axis="x")
    styles = itertools.cycle(zip(_COLOURS, _HATCHES, strict=True))
    for view, (share, (colour, hatch)) in enumerate(zip(model.shares, styles, strict=False), start=1):
        style: dict[str, Any] = {"color": OKABE_ITO[colour], "hatch": hatch, "edgecolor": "white"}
        bars = axes.bar([view], [100 * share], 0.65, **style)
        axes.bar_label(bars, fmt="%.1f", fontsize=9, padding=1.5)
    even = 100 / len(model.shares)
    axes.axhline(even, color=GREY, linestyle=":", linewidth=1.4, label=f"even: {even:.1f}")
    lam = "" if model.lam is None else f", λ = {model.lam:g}"
    similarity = "" if model.similarity is None else f"\nmean cosine of two views {model.similarity:.3f}"
    axes.set_title(f"{model.name}{lam}{similarity}", fontsize=10)
    axes.set_xticks(range(1, len(model.shares) + 1))
    axes.set(xlabel="view", ylabel="captions nearest to it (%)")
    axes.set_ylim(0, min(118.0, 100 * float(np.max(model.shares)) * 1.25 + 5))
    axes.legend(frameon=False, fontsize=9, loc="upper right")


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

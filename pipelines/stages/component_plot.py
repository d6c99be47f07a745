"""A figure of what captions talk about: the commonest objects, attributes and relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from vse_core.evaluation.plots import OKABE_ITO

_COLOURS = ("blue", "vermillion", "green")


def plot_commonest(commonest: Mapping[str, Sequence[tuple[str, int]]], captions: int, split: str) -> Figure:
    """Plot the share of captions for each of the commonest words, a panel of bars a kind.

    Args:
        commonest: kind ("objects") -> words with their counts, the commonest first.
        captions: number of captions that were counted.
        split: its name, for the title.

    Returns:
        The figure.
    """
    rows = max(1, *(len(words) for words in commonest.values()))
    figure = Figure(figsize=(4.2 * len(commonest), 1.2 + 0.22 * rows), layout="constrained", dpi=120)
    figure.suptitle(f"What {captions:,} captions of {split} talk about")
    for axes, (kind, words), colour in zip(
        figure.subplots(1, len(commonest), squeeze=False)[0], commonest.items(), _COLOURS, strict=True
    ):
        axes.barh(range(len(words)), [100 * count / max(1, captions) for _, count in words], color=OKABE_ITO[colour])
        axes.set_yticks(range(len(words)), [word for word, _ in words])
        axes.invert_yaxis()
        axes.set_xlabel("per 100 captions")
        axes.set_title(kind)
        axes.spines[["top", "right"]].set_visible(False)
    return figure

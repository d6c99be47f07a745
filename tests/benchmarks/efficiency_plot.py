"""The plot of `efficiency.py`: time of a query over the size of the gallery, and speed of the aggregators."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from vse_core.evaluation.plots import GREY, OKABE_ITO

STYLES = {
    "matrix product and top-k": ("blue", "o", "-"),
    "this library, exact": ("sky", "s", "-"),
    "FAISS flat, exact": ("green", "^", "-"),
    "FAISS IVF": ("orange", "D", "--"),
    "FAISS HNSW": ("purple", "v", "--"),
}


def draw(result: dict[str, Any]) -> Figure:
    """Plot the measured part: one panel or two, side by side.

    Args:
        result: what `efficiency.py` writes.
    """
    panels = [panel for part, panel in (("queries", _queries), ("aggregators", _aggregators)) if part in result]
    figure = Figure(figsize=(7.5 * max(1, len(panels)), 5.5), layout="constrained")
    for place, panel in enumerate(panels, start=1):
        panel(figure.add_subplot(1, len(panels), place), result)
    return figure


def _queries(axes: Any, result: dict[str, Any]) -> None:
    found = result["queries"]["result"]
    sizes = sorted(int(size) for size in found["sizes"])
    for way, (colour, marker, dash) in STYLES.items():
        points = [(size, found["sizes"][str(size)][way]) for size in sizes if way in found["sizes"][str(size)]]
        if points:
            lowest = min(point["recall_at_10"] for _, point in points)
            label = way if lowest > 0.995 else f"{way} (recall at 10: {lowest:.0%} or more)"
            times = [point["milliseconds"] for _, point in points]
            style = {"color": OKABE_ITO[colour], "marker": marker, "linestyle": dash}
            axes.plot([size for size, _ in points], times, label=label, **style)
    if "cross" in result:
        pair = result["cross"]["result"]["milliseconds a pair"]
        label = "cross-attention of BERT's size: time of a pair × gallery"
        style = {"color": OKABE_ITO["vermillion"], "marker": "X", "linestyle": ":"}
        axes.plot(sizes, [pair * size for size in sizes], label=label, **style)
    if "models" in result:
        caption = result["models"]["result"]["VSE-infinity, BERT"]["milliseconds"]["caption"]
        axes.axhline(caption, color=GREY, linewidth=1, label="encoding a caption with BERT, once a query")
    axes.set(xscale="log", yscale="log", xlabel="images in the gallery", ylabel="time of a query (ms)")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    threads = result["queries"]["threads"]
    axes.set_title(f"One query, {found['dimensions']} dimensions, {threads} thread{'s' if threads > 1 else ''}")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, frameon=False)


def _plain(value: float, _place: int) -> str:
    """A number without a power of ten."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _aggregators(axes: Any, result: dict[str, Any]) -> None:
    found = result["aggregators"]["result"]
    speeds = sorted(found["items_per_second"].items(), key=lambda entry: entry[1])
    bars = axes.barh([name for name, _ in speeds], [speed for _, speed in speeds], color=OKABE_ITO["blue"])
    axes.bar_label(bars, [f"{speed:,}" for _, speed in speeds], padding=3, fontsize=8)
    axes.set(xscale="log", xlabel="sets of 36 vectors a second")
    axes.set_xlim(right=10 * speeds[-1][1])
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.tick_params(axis="x", labelrotation=30)
    axes.set_title(f"Aggregators at inference, {found['sets'].replace('x', '×')}")
    axes.grid(axis="x", alpha=0.3)

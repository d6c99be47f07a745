"""The results of a run: its metrics, with what the papers report of the same protocol, or of the nearest there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipelines.config import PipelineConfig
from pipelines.reporting.curves import evaluation_pictures
from pipelines.reporting.page import Html, Section, details, heading, joined, missing, paragraph, picture, table
from pipelines.reporting.published import RECALLS, published_rows
from pipelines.reporting.run import Run
from vse_core.evaluation.protocols import RETRIEVAL_PROTOCOLS

_HEADERS = ("", "image to text R@1", "R@5", "R@10", "text to image R@1", "R@5", "R@10", "RSUM", "figures are", "remark")
# Shown where a run's data are none that the papers report.
_REFERENCE = "flickr30k_1k"
# What the gallery section shows in another form, and the curves have shown.
_SHOWN_ELSEWHERE = ("text_to_image", "image_to_text", "gpo_coefficients")


def results(run: Run) -> Section:
    """Retrieval beside the published rows, and all other metrics."""
    manifest = run.manifest("evaluate")
    metrics = manifest.get("metrics")
    if not metrics:
        return Section("Results", missing("metrics: the evaluation has not come to its end"))
    parts = [_retrieval(run.config, metrics), *(_protocol(run.config, metrics, name) for name in _published(run))]
    if not _published(run):
        parts.append(_other_data(run.config))
    others = [(name, f"{value:.4g}") for name, value in sorted(metrics.items())]
    parts.append(details(f"All {len(others)} metrics of the evaluation (measured)", table(("metric", "value"), others)))
    return Section("Results", joined(*parts, *_pictures(run)))


def measured_row(name: str, metrics: Mapping[str, float], prefix: str = "") -> tuple[str, ...]:
    """A row of figures of our own, with their 95 % interval as the remark."""
    low, high = (metrics.get(f"{prefix}rsum_{bound}") for bound in ("low", "high"))
    interval = "" if low is None or high is None else f"95 % interval of RSUM: {low:.1f} to {high:.1f}"
    recalls = (f"{metrics[prefix + recall]:.1f}" for recall in RECALLS)
    return (name, *recalls, f"{metrics[f'{prefix}rsum']:.1f}", "measured", interval)


def _retrieval(config: PipelineConfig, metrics: Mapping[str, float]) -> Html:
    split, folds = config.dataset.eval_split, config.evaluation.folds
    title = f"Retrieval on {split}" + (f", mean of {folds} folds" if folds > 1 else "")
    return joined(heading(title), table(_HEADERS, [measured_row(config.name, metrics)], ["measured"]))


def _published(run: Run) -> list[str]:
    """The protocols of the run that papers report, too."""
    return [name for name in run.config.evaluation.protocols if name in RETRIEVAL_PROTOCOLS and published_rows(name)]


def _protocol(config: PipelineConfig, metrics: Mapping[str, float], protocol: str) -> Html:
    """A table of both, of the same images and captions."""
    rows = [measured_row(config.name, metrics, f"{protocol}/"), *_published_cells(protocol)]
    classes = ["measured", *("published" for _ in rows[1:])]
    return joined(heading(f"{RETRIEVAL_PROTOCOLS[protocol].title}"), table(_HEADERS, rows, classes))


def _other_data(config: PipelineConfig) -> Html:
    """The published rows of other data, said to be so."""
    title = RETRIEVAL_PROTOCOLS[_REFERENCE].title
    rows = _published_cells(_REFERENCE)
    note = (
        f"The papers report no figures of this run's data ({config.dataset.format}, {config.dataset.eval_split}). "
        f"These are of {title}: other images and captions, other training data, and in most cases other features. "
        "They say what the systems reach there, and are not to be compared with the figures above."
    )
    body = joined(paragraph(note), table(_HEADERS, rows, ["published"] * len(rows)))
    return details(f"Published figures of other data: {title}", body)


def _published_cells(protocol: str) -> list[Sequence[str]]:
    return [
        (
            f"{row.system}, {row.features}, {row.text}",
            *(f"{recall:.1f}" for recall in row.recalls),
            f"{row.rsum:.1f}",
            f"published ({row.source})",
            row.remark,
        )
        for row in published_rows(protocol)
    ]


def _pictures(run: Run) -> list[Html]:
    """What the protocols have drawn."""
    files = [file for file in evaluation_pictures(run) if not file.stem.startswith(_SHOWN_ELSEWHERE)]
    return [picture(file.read_bytes(), f"{file.stem.replace('_', ' ').capitalize()}.") for file in files]

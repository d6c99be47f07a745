"""How a model is evaluated on a split: its gallery, its recalls both ways, contact sheets, learned pooling weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.config import PipelineConfig
from pipelines.config.training import GRAPH_PROTOCOLS
from pipelines.inference.feature_check import require_features
from pipelines.kinds import saved_kind
from pipelines.kinds.kind import Split
from pipelines.runtime.stage import StageDir, StageError, StageReport, content_digest, fingerprint, manifest_in
from pipelines.stages import extract, parse
from pipelines.stages.data_inputs import log_splits
from preprocessing.captions import adversarial
from preprocessing.datasets.crisscrossed import crisscrossed_files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipelines.evaluation.protocols import Findings
    from pipelines.inference.text_embedder import TextEmbedder
    from pipelines.retrieval.gallery import Gallery
    from pipelines.tracking import Tracker
    from preprocessing.shards.reader import ShardReader
    from vse_core.models import Model

NAME = "evaluate"
# Raised when the same model and data would give other outputs.
VERSION = 3
GALLERY, PICTURES = "gallery", "pictures"
# Caption lengths in tokens whose pooling weights are drawn: from short captions to long ones.
_CAPTION_LENGTHS = (6, 10, 14, 20)


def evaluate_model(config: PipelineConfig, model: Path) -> StageReport:
    """Evaluate any model directory on the evaluation split of the configuration, which is extracted where it is not.

    The model brings its own caption encoder; the features must be those it was trained on.

    Raises:
        StageError: the model does not fit the features, or was trained on others.
    """
    from pipelines.stages.runner import run_stages
    from pipelines.tracking import PipelineRuns
    from pipelines.training.checkpoints import weights_digest

    require_features(config, model)
    run_stages(config, [extract.NAME])
    if config.reads_graphs:
        run_stages(config, [parse.NAME])
    content = {
        "version": VERSION,
        "model": weights_digest(model),
        "features": extract.plan(config).fingerprint,
        # Of several in the same shards.
        "reads": config.features.member,
        **evaluation_content(config),
    }
    stage = StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)
    if not stage.is_complete():
        with PipelineRuns(config, stage.fingerprint) as runs, runs.parent as tracker:
            tracker.set_tags({"vse.model": str(model)})
            evaluate_into(config, model, stage, tracker)
    return StageReport(NAME, stage.path, stage.read_manifest()["summary"])


def evaluation_content(config: PipelineConfig) -> dict[str, Any]:
    """What decides an evaluation besides the model and the features."""
    evaluation, split = config.evaluation, config.dataset.eval_split
    content = {"split": split, "folds": evaluation.folds, "protocols": evaluation.protocols}
    if evaluation.cxc is not None and "cxc" in evaluation.protocols:
        content["cxc"] = [content_digest(file) for file in crisscrossed_files(evaluation.cxc, split)]
    if config.reads_graphs:
        content["graphs"] = parse.plan(config).fingerprint
    if "attack" in evaluation.protocols:
        content["adversarials"] = adversarial.VERSION
    return content


def metrics_of(report: StageReport) -> dict[str, float]:
    """The metrics behind a report of this stage."""
    metrics: dict[str, float] = manifest_in(report.directory)["metrics"]
    return metrics


def evaluate_into(config: PipelineConfig, model: Path, stage: StageDir, tracker: Tracker) -> None:
    """Evaluate a model and complete the stage with its gallery, pictures and metrics."""
    graphs = parse.plan(config).outputs.values() if config.reads_graphs else ()
    with config.mirror.pinned(extract.plan(config).outputs[config.dataset.eval_split], *graphs):
        _evaluate_into(config, model, stage, tracker)


def _evaluate_into(config: PipelineConfig, model: Path, stage: StageDir, tracker: Tracker) -> None:
    split, folds = config.dataset.eval_split, config.evaluation.folds
    tracker.set_tags(
        {
            "vse.fingerprint": stage.fingerprint,
            "vse.data_fingerprint": extract.plan(config).fingerprint,
            "vse.split": split,
            "vse.protocol": f"image-text recall, {folds} fold(s)",
            "vse.seed": config.seed,
        }
    )
    log_splits(config, tracker, {split: "evaluation"})
    embedded = embed_split(config, model)
    directory = stage.create()
    embedded.gallery.save(directory / GALLERY)
    for picture in draw(embedded, directory / PICTURES):
        tracker.log_artifact(picture, PICTURES)
    graphed = (name for name in config.evaluation.protocols if name in GRAPH_PROTOCOLS)
    found = chain(
        rank(config, [embedded.gallery], directory),
        (evaluate_captions(config, name, embedded, directory) for name in graphed),
    )
    metrics, summary = collect(found, split, tracker, directory / PICTURES)
    stage.complete({"metrics": metrics, "split": split, "folds": folds, "summary": summary})


def rank(config: PipelineConfig, galleries: Sequence[Gallery], directory: Path) -> Iterator[Findings]:
    """Evaluate image-text retrieval, and by name what else embeddings are enough for; files go into the directory.

    Args:
        config: names the split and the protocols.
        galleries: of a model, or of the members of an ensemble in the same order.
        directory: where the tables of queries go.
    """
    from pipelines.evaluation.protocols import RANKINGS, Embedded, retrieval
    from vse_core.evaluation.protocols import RETRIEVAL_PROTOCOLS

    settings = config.evaluation
    named = [name for name in settings.protocols if name in RANKINGS]
    cuts = {settings.folds, *(RETRIEVAL_PROTOCOLS[name].folds for name in named if name in RETRIEVAL_PROTOCOLS)}
    embedded = Embedded(galleries, config.dataset.eval_split, directory, tuple(sorted(cuts)), settings.cxc)
    yield retrieval(embedded, settings.folds)
    for name in named:
        yield RANKINGS[name](embedded)


def collect(found: Iterable[Findings], split: str, tracker: Tracker, pictures: Path) -> tuple[dict[str, float], str]:
    """Log what each protocol finds as soon as it has: metrics under the split's name, pictures, files.

    Args:
        found: what the protocols find.
        split: its name.
        tracker: of the run.
        pictures: folder for the pictures.

    Returns:
        All metrics, and a summary.
    """
    metrics: dict[str, float] = {}
    summaries = []
    for findings in found:
        metrics |= findings.metrics
        summaries.append(findings.summary)
        tracker.log_metrics({f"{split}/{name}": value for name, value in findings.metrics.items()})
        for name, figure in findings.figures.items():
            pictures.mkdir(exist_ok=True)
            figure.savefig(pictures / f"{name}.png", bbox_inches="tight")
            tracker.log_artifact(pictures / f"{name}.png", PICTURES)
        for file in findings.files:
            tracker.log_artifact(file, findings.name)
    return metrics, f"{split} {'; '.join(summaries)}"


def evaluate_captions(config: PipelineConfig, protocol: str, embedded: EmbeddedSplit, directory: Path) -> Findings:
    """Evaluate a model by one of UniVSE's protocols; files go into the directory."""
    from pipelines.evaluation.protocols import CAPTION_PROTOCOLS, Subject
    from preprocessing.datasets import CocoDataset, build_dataset

    graphs = parse.plan(config).outputs
    dataset = build_dataset(config.dataset.format, **config.dataset.options())
    names = dataset.detections(config.dataset.eval_split) if isinstance(dataset, CocoDataset) else None
    records = embedded.gallery.records
    subject = Subject(
        texts=embedded.texts,
        gallery=embedded.gallery,
        reader=embedded.reader,
        train_graphs=graphs[config.dataset.train_split],
        graphs=graphs[config.dataset.eval_split],
        directory=directory,
        detections=[names.get(record.image_id, ()) for record in records] if names is not None else None,
    )
    return CAPTION_PROTOCOLS[protocol](subject)


@dataclass(frozen=True)
class EmbeddedSplit:
    """A model and a split embedded with it.

    Attributes:
        texts: the model, in evaluation mode, with what its text side needs.
        gallery: the embeddings.
        reader: the features.
        set_size: N, feature vectors or cells of the first image.
    """

    texts: TextEmbedder
    gallery: Gallery
    reader: ShardReader
    set_size: int

    @property
    def model(self) -> Model:
        """The model itself."""
        return self.texts.model


def embed_split(config: PipelineConfig, directory: Path) -> EmbeddedSplit:
    """Load a model directory and embed the evaluation split with it.

    Raises:
        ShardError: the split has not been extracted.
        StageError: the model was trained on other features, or a protocol is not for this split.
    """
    from pipelines.evaluation.protocols.rankings import require_published
    from pipelines.inference.embedder import default_device
    from pipelines.inference.image_inputs import image_source, misfit
    from pipelines.inference.text_embedder import TextEmbedder
    from pipelines.retrieval.gallery import build_gallery
    from preprocessing.datasets import build_dataset
    from preprocessing.shards.reader import ShardReader
    from vse_core.models import load_model

    try:
        texts = TextEmbedder(load_model(directory, default_device()), directory)
    except (FileNotFoundError, ValueError) as error:
        raise StageError(f"{NAME}: {error}") from error
    reader = ShardReader(extract.plan(config).outputs[config.dataset.eval_split], config.features.member)
    require_published(config.evaluation.protocols, config.dataset.eval_split, reader.caption_counts.tolist())
    reason = misfit(texts.model, reader)
    if reason is not None:
        raise StageError(
            f"{NAME}: the model in {directory} {reason}: evaluate it with the configuration of its own features"
        )
    root = build_dataset(config.dataset.format, **config.dataset.options()).root
    kind = saved_kind(directory)
    graphs = parse.plan(config).outputs[config.dataset.eval_split] if kind.reads_graphs else None
    inputs = kind.text_inputs(config.model.text, Split(reader, graphs), texts.caption_encoder)
    gallery = build_gallery(texts.model, reader, texts.caption_encoder, root, inputs)
    _, lengths_or_mask = image_source(texts.model, reader).whole([0])
    return EmbeddedSplit(texts, gallery, reader, int(lengths_or_mask[0].sum()))


def draw(embedded: EmbeddedSplit, directory: Path) -> list[Path]:
    """Draw contact sheets and, where the model pools by GPO, its coefficients; returns the files.

    HGR's model has no sheets: they are searched by embeddings.
    """
    from pipelines.retrieval.contact_sheet import contact_sheet_png
    from pipelines.retrieval.sheet_rows import image_to_text_rows, text_to_image_rows

    directory.mkdir(exist_ok=True)
    sheets = {}
    if embedded.gallery.has_embeddings:
        sheets = {
            "text_to_image": ("Captions and their nearest images", text_to_image_rows(embedded.gallery)),
            "image_to_text": ("Images and their nearest captions", image_to_text_rows(embedded.gallery)),
        }
    files = []
    for name, (title, rows) in sheets.items():
        files.append(directory / f"{name}.png")
        contact_sheet_png(title, rows).save(files[-1])
    for name, figure in pooling_figures(embedded.model, embedded.set_size).items():
        files.append(directory / f"{name}.png")
        figure.savefig(files[-1], bbox_inches="tight")
    return files


def pooling_figures(model: Model, set_size: int) -> dict[str, Figure]:
    """The learned GPO coefficients of both towers for sets of this size, a figure for each view; none without GPO."""
    import torch

    from vse_core.evaluation.plots import plot_gpo_coefficients
    from vse_core.pooling import MultiViewPooling
    from vse_core.pooling.gpo import GeneralizedPooling

    def weights(pooling: torch.nn.Module | None, lengths: tuple[int, ...]) -> dict[int, list[float]] | None:
        """GPO's weights for sets of each length; None for other aggregators."""
        if not isinstance(pooling, GeneralizedPooling):
            return None
        device = next(pooling.parameters()).device
        with torch.inference_mode():
            rows = pooling.coefficients(torch.tensor(lengths, device=device)).cpu()
        return {length: row[:length].tolist() for length, row in zip(lengths, rows, strict=True)}

    # As at inference, and as after the size augmentation of training.
    sizes = tuple(dict.fromkeys((set_size, max(1, round(0.8 * set_size)))))
    pooling: Any = model.image_encoder.pooling
    views = list(pooling.views) if isinstance(pooling, MultiViewPooling) else [pooling]
    # UniVSE pools no words.
    texts = weights(getattr(model.text_encoder, "pooling", None), _CAPTION_LENGTHS)
    figures = {}
    for number, view in enumerate(views, start=1):
        images = weights(view, sizes)
        if images is not None or texts is not None:
            name = "gpo_coefficients" if len(views) == 1 else f"gpo_coefficients_view_{number}"
            figures[name] = plot_gpo_coefficients(images, texts)
    return figures

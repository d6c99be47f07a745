"""The evaluation of a model on a split: its gallery, its recalls both ways, contact sheets, learned pooling weights."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import nn

from pipelines.config import PipelineConfig
from pipelines.config.datasets import Dataset
from pipelines.config.training import GRAPH_PROTOCOLS, EvaluationConfig
from pipelines.evaluation import GALLERY, NAME, PICTURES
from pipelines.evaluation.hub_correction import UncorrectedError, confidence_of, find_correction
from pipelines.evaluation.protocols import CAPTION_PROTOCOLS, RANKINGS, Embedded, EvaluationInputs, Results, retrieval
from pipelines.evaluation.protocols.rankings import corrected_retrieval, require_published
from pipelines.inference.embedder import default_device
from pipelines.inference.image_inputs import image_source, misfit, set_size
from pipelines.inference.text_embedder import TextEmbedder
from pipelines.kinds import saved_kind
from pipelines.kinds.inputs import SplitData, SplitPaths
from pipelines.registry.models import CORRECTION
from pipelines.retrieval.gallery import Gallery, build_gallery, with_columns, with_photographs
from pipelines.retrieval.hits import contact_sheet, own_queries
from pipelines.runtime.stage import StageDir, StageError
from pipelines.tracking import Tracker
from pipelines.training.prepare import require_equal_folds
from preprocessing.datasets import KarpathyDataset, build_dataset
from preprocessing.shards.reader import ShardReader
from vse_core import registry
from vse_core.evaluation.plots import plot_gpo_coefficients
from vse_core.evaluation.protocols import RETRIEVAL_PROTOCOLS
from vse_core.models import Model, load_model
from vse_core.pooling import MultiViewPooling
from vse_core.pooling.gpo import GeneralizedPooling
from vse_core.precision import use_tf32

# Caption lengths in tokens whose pooling weights are drawn: from short captions to long ones.
_CAPTION_LENGTHS = (6, 10, 14, 20)


@dataclass(frozen=True)
class EmbeddedSplit:
    """A split, its embeddings and the model; `set_size` is N, the vectors pooled of the first image."""

    texts: TextEmbedder
    gallery: Gallery
    reader: ShardReader
    set_size: int


def evaluate_into(
    config: PipelineConfig,
    shards: Path,
    graphs: Mapping[str, Path],
    train: SplitPaths,
    model: Path,
    stage: StageDir,
    tracker: Tracker,
    may_choose: bool,
) -> str:
    """Evaluate a model and complete the stage with its gallery, figures and metrics; returns a summary.

    `shards` are those of the evaluation split; `graphs` are by split, none if nothing needs them; `train` is what hubs
    are found with, and `may_choose` as in `find_correction`.
    Raises StageError if the model does not fit the features, or a protocol the split.
    """
    embedded = embed_split(config, shards, graphs, model)
    settings, split = config.evaluation, config.dataset.eval_split
    directory = stage.create()
    is_corrected = "hubs are not corrected: evaluation.hub_correction is off"
    confidence: list[Results] = []
    if settings.hub_correction:
        try:
            correction = find_correction(config, train, embedded.texts, model, embedded.gallery, may_choose)
            correction.save(directory / CORRECTION)
            embedded = replace(embedded, gallery=correction.of_gallery(embedded.gallery))
            is_corrected = f"hubs are corrected: {correction}"
            # A stored one was measured on the split that its model was selected on.
            confidence = [confidence_of(correction)] if may_choose else []
        except UncorrectedError as error:
            is_corrected = f"hubs are not corrected: {error}"
    tracker.set_tags({"vse.hub_correction": is_corrected})
    embedded.gallery.save(directory / GALLERY)
    for picture in draw(embedded, config.dataset, directory / PICTURES):
        tracker.log_artifact(picture, PICTURES)
    graphed = [name for name in settings.protocols if name in GRAPH_PROTOCOLS]
    found = chain(
        rank(settings, split, [embedded.gallery], directory),
        confidence,
        (evaluate_captions(config, graphs, name, embedded, directory) for name in graphed),
    )
    metrics, summary, files = collect(found, split, tracker, directory / PICTURES)
    summary = f"{summary}; {is_corrected}"
    content = {"metrics": metrics, "split": split, "folds": settings.folds, "summary": summary}
    stage.complete(content, [GALLERY, PICTURES, *files, *([CORRECTION] if embedded.gallery.biases else [])])
    return summary


def rank(settings: EvaluationConfig, split: str, galleries: Sequence[Gallery], directory: Path) -> Iterator[Results]:
    """Evaluate retrieval and other protocols of embeddings, of a model or an ensemble's galleries in the same order."""
    named = [name for name in settings.protocols if name in RANKINGS]
    cuts = {settings.folds, *(RETRIEVAL_PROTOCOLS[name].folds for name in named if name in RETRIEVAL_PROTOCOLS)}
    embedded = Embedded(galleries, split, directory, tuple(sorted(cuts)), settings.cxc)
    yield retrieval(embedded, settings.folds)
    if embedded.is_corrected:
        yield corrected_retrieval(embedded, settings.folds)
    for name in named:
        yield RANKINGS[name](embedded)
    for added in settings.added:
        yield registry.added("protocol")[added.name](embedded, added)


def collect(
    found: Iterable[Results], split: str, tracker: Tracker, pictures: Path
) -> tuple[dict[str, float], str, list[str]]:
    """Log the results of each protocol as soon as there are any; returns all metrics, a summary, the names of files."""
    metrics: dict[str, float] = {}
    summaries, files = [], []
    pictures.mkdir(exist_ok=True)
    for results in found:
        metrics |= results.metrics
        summaries.append(results.summary)
        tracker.log_metrics({f"{split}/{name}": value for name, value in results.metrics.items()})
        for name, figure in results.figures.items():
            figure.savefig(pictures / f"{name}.png", bbox_inches="tight")
            tracker.log_artifact(pictures / f"{name}.png", PICTURES)
        for file in results.files:
            tracker.log_artifact(file, results.name)
            files.append(file.name)
    return metrics, f"{split} {'; '.join(summaries)}", files


def evaluate_captions(
    config: PipelineConfig, graphs: Mapping[str, Path], protocol: str, embedded: EmbeddedSplit, directory: Path
) -> Results:
    """Evaluate a model by one of UniVSE's protocols; files go into the directory."""
    split, dataset = config.dataset.eval_split, build_dataset(config.dataset.format, **config.dataset.options())
    names = dataset.detections(split) if isinstance(dataset, KarpathyDataset) else None
    gallery = embedded.gallery.first(config.evaluation.first_images)
    inputs = EvaluationInputs(
        texts=embedded.texts,
        gallery=gallery,
        reader=embedded.reader,
        train_graphs=graphs[config.dataset.train_split],
        graphs=graphs[split],
        directory=directory,
        pools=config.pools,
        detections=[names.get(record.image_id, ()) for record in gallery.records] if names is not None else None,
    )
    return CAPTION_PROTOCOLS[protocol](inputs)


def embed_split(config: PipelineConfig, shards: Path, graphs: Mapping[str, Path], directory: Path) -> EmbeddedSplit:
    """Load a model directory and embed the evaluation split with it.

    Raises ShardError if the split has no shards, and StageError if the model's features or a protocol are of another.
    """
    use_tf32(False)  # which cuDNN may take otherwise
    try:
        texts = TextEmbedder(load_model(directory, default_device()), directory)
    except (FileNotFoundError, ValueError) as error:
        raise StageError(f"{NAME}: {error}") from error
    dataset = config.dataset
    reader = ShardReader(shards, config.features.member, verify=True)
    require_published(config.evaluation.protocols, dataset.eval_split, reader.caption_counts.tolist())
    require_equal_folds(NAME, config.evaluation.folds, len(reader), dataset.eval_split)
    reason = misfit(texts.model, reader)
    if reason is not None:
        raise StageError(
            f"{NAME}: the model in {directory} {reason}: evaluate it with the configuration of its own features"
        )
    root = build_dataset(dataset.format, **dataset.options()).root
    split = SplitData(reader, graphs.get(dataset.eval_split))
    inputs = saved_kind(directory).behaviour.text_inputs(config.model.text, split, texts.caption_encoder, texts.model)
    gallery = build_gallery(texts.model, reader, texts.caption_encoder, root, inputs)
    _, lengths_or_mask = image_source(texts.model, reader).unaugmented([0])
    return EmbeddedSplit(texts, with_columns(gallery, dataset), reader, set_size(texts.model, lengths_or_mask))


def draw(embedded: EmbeddedSplit, dataset: Dataset, directory: Path) -> list[Path]:
    """Draw contact sheets, if a search is possible, and GPO's coefficients, if the model has any; returns the files."""
    directory.mkdir(exist_ok=True)
    files = []
    if embedded.gallery.has_embeddings:
        gallery = with_photographs(embedded.gallery, dataset)
        files = [directory / "text_to_image.html", directory / "image_to_text.html"]
        files[0].write_bytes(contact_sheet("Captions and their nearest images", own_queries(gallery, "images")))
        files[1].write_bytes(contact_sheet("Images and their nearest captions", own_queries(gallery, "captions")))
    for name, figure in pooling_figures(embedded.texts.model, embedded.set_size).items():
        files.append(directory / f"{name}.png")
        figure.savefig(files[-1], bbox_inches="tight")
    return files


def pooling_figures(model: Model, set_size: int) -> dict[str, Figure]:
    """Plot the GPO coefficients of both towers for sets of this size, a figure for each view; none without GPO."""

    def weights(pooling: nn.Module | None, lengths: tuple[int, ...]) -> dict[int, list[float]] | None:
        """Return GPO's coefficients by length; None of other aggregators."""
        if not isinstance(pooling, GeneralizedPooling):
            return None
        device = next(pooling.parameters()).device
        with torch.inference_mode():
            rows = pooling.coefficients(torch.tensor(lengths, device=device)).cpu()
        return {length: row[:length].tolist() for length, row in zip(lengths, rows, strict=True)}

    # As at inference, and as after the size augmentation of training.
    sizes = tuple(dict.fromkeys((set_size, max(1, round(0.8 * set_size)))))
    # An encoder may do without an aggregator.
    pooling, of_words = (getattr(encoder, "pooling", None) for encoder in (model.image_encoder, model.text_encoder))
    views = list(pooling.views) if isinstance(pooling, MultiViewPooling) else [pooling]
    texts = weights(of_words, _CAPTION_LENGTHS)
    figures = {}
    for number, view in enumerate(views, start=1):
        images = weights(view, sizes)
        if images is not None or texts is not None:
            name = "gpo_coefficients" if len(views) == 1 else f"gpo_coefficients_view_{number}"
            figures[name] = plot_gpo_coefficients(images, texts)
    return figures

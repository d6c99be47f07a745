"""Benchmarks of composition: SugarCrepe, Winoground and ARO, of any model that embeds image files.

I images and C captions of a choice; B all images, K views, D embedding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
from torch import Tensor

from pipelines.evaluation.protocols.results import Results
from pipelines.inference.image_inputs import model_inputs
from pipelines.runtime.progress import progress_bar
from pipelines.runtime.stage import StageError
from preprocessing.datasets.choices import BENCHMARKS, Choice, Image
from preprocessing.features.extractor import Extractor, FileExtractor
from preprocessing.features.images import ImageError, image_bytes, load_image
from vse_core.evaluation.choices import image_correct, macro_accuracy, text_correct
from vse_core.evaluation.embedding import embed_images
from vse_core.similarity import similarity_matrix

if TYPE_CHECKING:
    from pipelines.inference.text_embedder import TextEmbedder

_IMAGES_AT_ONCE = 32


@dataclass(frozen=True)
class ChoiceInputs:
    """A model with the extractor of its images, the folder of the benchmark, and where files go."""

    texts: TextEmbedder
    extractor: Extractor
    folder: Path
    directory: Path


def choices(name: str, inputs: ChoiceInputs) -> Results:
    """Evaluate a benchmark: the share of choices in which the own caption, or image, is more similar than all others.

    Metrics, in per cent and with their intervals, are ``sugarcrepe/add_obj`` and so on for the files that are there;
    ``aro/relation`` and ``aro/attribution``, means over relations and over pairs of attributes; ``winoground/text``,
    ``winoground/image`` and ``winoground/group``, both. ``NAME/skipped`` is the number of choices with an image that
    cannot be read. ``NAME_choices.parquet`` has a row for each choice. Raises DatasetError where annotations or images
    are missing, and StageError where the model does not read image files or no image can be read.
    """
    benchmark = BENCHMARKS[name]
    if not isinstance(inputs.extractor, FileExtractor):
        raise StageError(
            f"protocol {name}: {inputs.extractor.name!r} features are computed elsewhere; the images of {name} need a "
            "model whose features are extracted here"
        )
    items = benchmark.choices(inputs.folder)
    images_BKD, row_of, skipped = _embed_images(inputs, inputs.extractor, items, benchmark.title)
    texts = list(dict.fromkeys(caption for item in items for caption in item.captions))
    texts_CD = inputs.texts.embed(texts, f"{benchmark.title}: captions")
    place_of = {text: place for place, text in enumerate(texts)}
    found: dict[str, list[tuple[bool, str, str]]] = {}
    rows = []
    for item in items:
        reasons = [f"{image[0]}: {skipped[image]}" for image in item.images if image in skipped]
        similarities: list[float] = []
        if not reasons:
            sims_IC = similarity_matrix(
                images_BKD[[row_of[image] for image in item.images]],
                texts_CD[[place_of[caption] for caption in item.captions]],
            )
            similarities = sims_IC.flatten().tolist()
            for metric, correct in _outcomes(item, sims_IC):
                found.setdefault(metric, []).append((correct, item.group, item.images[0][0]))
        rows.append({
            "item": item.item, "group": item.group, "images": [path for path, _ in item.images],
            "captions": item.captions, "similarities": similarities, "skipped": "; ".join(reasons),
        })  # fmt: skip
    metrics = {f"{name}/skipped": float(sum(bool(row["skipped"]) for row in rows))}
    for metric, outcomes in found.items():
        correct_Q, groups, images = zip(*outcomes, strict=True)
        value, interval = macro_accuracy(correct_Q, groups, images)
        metrics |= {f"{name}/{metric}": value, f"{name}/{metric}_low": interval.low,
                    f"{name}/{metric}_high": interval.high}  # fmt: skip
    file = inputs.directory / f"{name}_choices.parquet"
    pa.parquet.write_table(pa.Table.from_pylist(rows), file)
    summary = f"{benchmark.title} " + ", ".join(f"{metric} {metrics[f'{name}/{metric}']:.1f}" for metric in found)
    return Results(name, metrics, summary, files=(file,))


def _outcomes(item: Choice, sims_IC: Tensor) -> Iterator[tuple[str, bool]]:
    """Yield the metrics of a choice with whether it is correct."""
    if len(item.images) == 1:
        yield item.subset, text_correct(sims_IC)
        return
    of_texts, of_images = text_correct(sims_IC), image_correct(sims_IC)
    yield from (("text", of_texts), ("image", of_images), ("group", of_texts and of_images))


def _embed_images(
    inputs: ChoiceInputs, extractor: FileExtractor, items: Iterable[Choice], title: str
) -> tuple[Tensor, dict[Image, int], dict[Image, str]]:
    """Embed each image once: vectors (B, K, D), the row of each image, and the reasons of those that are skipped."""
    images = list(dict.fromkeys(image for item in items for image in item.images))
    row_of: dict[Image, int] = {}
    skipped: dict[Image, str] = {}

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        with progress_bar(f"{title}: images", len(images), "images") as bar:
            for start in range(0, len(images), _IMAGES_AT_ONCE):
                batch = images[start : start + _IMAGES_AT_ONCE]
                loaded = []
                for image in batch:
                    try:
                        loaded.append(_load(extractor, image))
                        row_of[image] = len(row_of)
                    except ImageError as error:
                        skipped[image] = str(error)
                if loaded:
                    yield model_inputs(inputs.texts.model, inputs.extractor(loaded))
                bar.update(len(batch))

    prepared = batches()
    first = next(prepared, None)
    if first is None:
        (path, _), reason = next(iter(skipped.items()))
        raise StageError(f"{title}: none of {len(images):,} images can be read, such as {path}: {reason}")
    return embed_images(inputs.texts.model, chain([first], prepared)), row_of, skipped


def _load(extractor: FileExtractor, image: Image) -> Any:
    """Load an image, or the part of it that is shown, which passes through a lossless file."""
    path, box = image
    if box is None:
        return extractor.load(path)
    whole = load_image(path)
    left, top, right, bottom = box
    shown = max(0, left), max(0, top), min(right, whole.width), min(bottom, whole.height)
    if shown[0] >= shown[2] or shown[1] >= shown[3]:
        raise ImageError(f"the box {box} lies outside of its {whole.width} x {whole.height} pixels")
    return extractor.decode(image_bytes(whole.crop(shown), "PNG"))

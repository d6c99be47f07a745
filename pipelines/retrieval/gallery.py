"""The gallery of a model: the embeddings of a split's images and captions, and the records to show them.

B images, C captions, K views, D embedding.
"""

import itertools
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from safetensors.torch import load_file, save_file
from torch import Tensor

from pipelines.config.datasets import Dataset
from pipelines.inference.image_inputs import image_source
from pipelines.inference.text_embedder import text_batches
from pipelines.kinds.behaviour import TextInputs, tokens_alone
from pipelines.kinds.kind import ModelKind
from pipelines.retrieval.image_files import IMAGE, read_metadata, rows_of
from pipelines.runtime.cli import say
from pipelines.runtime.progress import counted
from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.captions.token_table import TokenTable
from preprocessing.datasets.checks import image_path, read_json_object
from preprocessing.datasets.record import Caption, Record
from preprocessing.loading.loader import image_batches
from preprocessing.reading import damage_as, parse_json
from preprocessing.shards.index import ShardError
from preprocessing.shards.reader import ShardReader
from preprocessing.storage.address import join, require_inner_name
from vse_core.digests import check_digests, write_digests
from vse_core.models import Model
from vse_core.outputs import Images, Texts, embed

EMBEDDINGS = "embeddings.safetensors"
ITEMS = "items.json"
METADATA = "metadata.parquet"
_NO_EMBEDDINGS = "the model has no embeddings of images and captions: nothing can be searched by them"


class GalleryError(Exception):
    """A gallery that cannot be read, searched or compared."""


class Biases(NamedTuple):
    """What hub correction subtracts from the similarities of each image (B,) and of each caption (C,)."""

    images_B: Tensor
    texts_C: Tensor


@dataclass(frozen=True)
class Gallery:
    """Embedded images and captions of one split, in the order of its shards.

    `images` are unit vectors (B, K, D) and `texts` (C, D), image after image, float32; or other outputs of a model that
    has no embeddings. The captions of the B records, one after another, are the C captions. `biases` correct hubs, if
    the model has a bank to find them with. `columns` tell more of each image (B rows), if it comes from a table that
    has further ones; the first is `image`, its id.
    """

    images: Images
    texts: Texts
    records: tuple[Record, ...]
    biases: Biases | None = None
    columns: pa.Table | None = None

    def __post_init__(self) -> None:
        """Refuse embeddings that do not fit the records."""
        captions = sum(len(record.captions) for record in self.records)
        if len(self.records) != len(self.images) or captions != len(self.texts):
            raise GalleryError(
                f"{len(self.records)} records with {captions} captions do not fit "
                f"{len(self.images)} image and {len(self.texts)} caption embeddings"
            )

    @property
    def has_embeddings(self) -> bool:
        """Return whether images and captions have one vector space."""
        return isinstance(self.images, Tensor)

    @property
    def images_BKD(self) -> Tensor:  # noqa: N802 (a letter a dimension)
        """Unit vectors of the images; `GalleryError` if the model has no embeddings."""
        return _embeddings(self.images)

    @property
    def texts_CD(self) -> Tensor:  # noqa: N802
        """Unit vectors of the captions; `GalleryError` if the model has no embeddings."""
        return _embeddings(self.texts)

    @cached_property
    def captions(self) -> list[tuple[int, Caption]]:
        """Every caption with the index of its image, in the order of `texts_CD`."""
        return [(index, caption) for index, record in enumerate(self.records) for caption in record.captions]

    @cached_property
    def metadata(self) -> pa.Table:
        """Return what conditions on images are about: their columns, or the ids alone."""
        ids = pa.array([record.image_id for record in self.records], pa.string())
        return pa.table({IMAGE: ids}) if self.columns is None else self.columns

    def columns_of(self, image: int) -> dict[str, Any]:
        """Return the further columns of an image that have a value: text, number, truth value, or a list of them."""
        if self.columns is None:
            return {}
        values = {name: _plain(self.columns[name][image]) for name in self.columns.column_names[1:]}
        return {name: value for name, value in values.items() if value is not None}

    def first(self, count: int | None) -> "Gallery":
        """Return the gallery of the first images, with their captions; of all if there are no more, or for None."""
        records = self.records[:count]
        captions = sum(len(record.captions) for record in records)
        return self._taken(slice(len(records)), slice(captions), records)

    def in_order_of(self, other: "Gallery") -> "Gallery":
        """Return this gallery in the order of another one of the same images and captions, for comparing models.

        Images are matched by their ids, the captions of an image by their words: ids of captions differ between
        formats, and spaces and punctuation between published files.
        """
        places = {record.image_id: index for index, record in enumerate(self.records)}
        _require_same_images(places, [record.image_id for record in other.records])
        images = [places[record.image_id] for record in other.records]
        starts = [0, *itertools.accumulate(len(record.captions) for record in self.records)]
        captions = [
            starts[image] + place
            for image, record in zip(images, other.records, strict=True)
            for place in _matching_captions(self.records[image], record)
        ]
        return self._taken(images, captions, other.records)

    def _taken(self, images: slice | list[int], captions: slice | list[int], records: tuple[Record, ...]) -> "Gallery":
        biases = None if self.biases is None else Biases(self.biases.images_B[images], self.biases.texts_C[captions])
        columns = None if self.columns is None else self.columns.take(pa.array(np.arange(len(self.records))[images]))
        return Gallery(self.images[images], self.texts[captions], records, biases, columns)

    def save(self, directory: Path) -> None:
        """Write `embeddings.safetensors` and `items.json`, with their digests, into a directory."""
        directory.mkdir(parents=True, exist_ok=True)
        tensors = {**_tensors("images_BKD", self.images), **_tensors("texts_CD", self.texts)}
        if self.biases is not None:
            tensors |= {f"bias_{name}": tensor for name, tensor in self.biases._asdict().items()}
        save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, directory / EMBEDDINGS)
        content = json.dumps({"images": [asdict(record) for record in self.records]}, ensure_ascii=False, indent=1)
        (directory / ITEMS).write_text(content + "\n", encoding="utf-8")
        if self.columns is not None:
            pyarrow.parquet.write_table(self.columns, directory / METADATA)
        write_digests(directory, EMBEDDINGS, ITEMS, *([METADATA] if self.columns is not None else []))

    @classmethod
    def load(cls, directory: Path, kind: ModelKind | None = None) -> "Gallery":
        """Read a gallery that `save` has written; one without embeddings needs the kind of its model.

        Raises GalleryError if there is none, DigestError if a file of it was changed.
        """
        for name in (EMBEDDINGS, ITEMS):
            if not (directory / name).is_file():
                raise GalleryError(f"{directory} holds no gallery: {name} is missing")
        check_digests(directory, EMBEDDINGS, ITEMS)
        with damage_as(GalleryError, f"the gallery in {directory} is damaged", "evaluate the model again"):
            tensors = load_file(directory / EMBEDDINGS)
            records = tuple(_record_from_json(item) for item in parse_json((directory / ITEMS).read_bytes())["images"])
            if "images_BKD" in tensors:
                names = [f"bias_{name}" for name in Biases._fields]
                biases = Biases(*(tensors[name] for name in names)) if names[0] in tensors else None
                return cls(tensors["images_BKD"], tensors["texts_CD"], records, biases, read_columns(directory))
        types = kind.behaviour.output_types if kind is not None else None
        if types is None:
            raise GalleryError(_NO_EMBEDDINGS)
        images, texts = (
            {name.removeprefix(side): tensor for name, tensor in tensors.items() if name.startswith(side)}
            for side in ("images_BKD.", "texts_CD.")
        )
        return cls(types[0](**images), types[1](**texts), records)


def build_gallery(
    model: Model,
    reader: ShardReader,
    caption_encoder: CaptionEncoder,
    root: str,
    inputs: TextInputs = tokens_alone,
    batch_size: int = 128,
) -> Gallery:
    """Embed every image and every caption of a split of shards on the model's device; the gallery is on the CPU.

    The image URIs of the shards are relative to `root` ("" if they are complete); `inputs` is the kind's
    `Behaviour.text_inputs`.
    """
    images = image_batches(image_source(model, reader), batch_size)
    images_BKD = embed(model, model.encode_images, counted(images, "embed images", len(reader), "images"))
    tokens = TokenTable.encode(reader.texts(), caption_encoder)
    captions = text_batches(tokens, caption_encoder.pad_id, inputs, batch_size)
    texts_CD = embed(model, model.encode_texts, counted(captions, "embed captions", reader.num_captions, "captions"))
    return Gallery(images_BKD, texts_CD, tuple(records_of(reader, root)))


def read_columns(directory: Path) -> pa.Table | None:
    """Read the columns of the images of a gallery's folder, None if it has none; DigestError if they were changed."""
    if not (directory / METADATA).is_file():
        return None
    check_digests(directory, METADATA)
    with pyarrow.parquet.ParquetFile(directory / METADATA) as file:  # not read_table, which imports pandas
        return file.read()


def _plain(scalar: pa.Scalar) -> Any:
    """Return a value as JSON has it: dates as text, and no number for one that is none."""
    if isinstance(scalar, pa.ListScalar):  # the other kinds of lists, too
        return None if scalar.values is None else [_plain(each) for each in scalar.values]
    try:
        value = scalar.as_py()
    except (OverflowError, ValueError):  # Python has no dates beyond its year 9999, and none of nanoseconds
        value = scalar.cast(pa.string()).as_py()
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, (float, Decimal)):
        return float(value) if math.isfinite(value) else None
    return str(value)


def with_columns(gallery: Gallery, dataset: Dataset) -> Gallery:
    """Return a gallery with its table's further columns, and say which are left out; StageError if it is unreadable."""
    if dataset.format != "table":
        return gallery
    table = dataset.table_of(dataset.eval_split)
    metadata, unnamed, _ = read_metadata(table, dataset.image_column, dataset.caption_columns)
    if unnamed:
        say(f"{table}: columns left out of the gallery, as no condition can name their values: {', '.join(unnamed)}")
    if metadata is None or metadata.num_columns == 1:
        return gallery
    return replace(gallery, columns=rows_of(metadata, [record.image_id for record in gallery.records]))


def with_photographs(gallery: Gallery, dataset: Dataset) -> Gallery:
    """Return a gallery to be drawn; raises as `drawn_records`."""
    return replace(gallery, records=tuple(drawn_records(gallery.records, dataset)))


def drawn_records(records: Iterable[Record], dataset: Dataset) -> Iterable[Record]:
    """Yield records of published features with the addresses of photographs, to be drawn; others as they are.

    Raises DatasetError if the file of names cannot be read, or leads out of the folder.
    """
    if dataset.format != "precomputed" or dataset.images is None:
        yield from records
        return
    folder, file = dataset.images, dataset.names_file
    names = read_json_object(file)
    for record in records:
        name = names.get(record.image_id)
        uri = image_path(folder, name, f"{file}, {record.image_id}") if name is not None else record.image_uri
        yield replace(record, image_uri=uri)


def _embeddings(embedded: Images | Texts) -> Tensor:
    if not isinstance(embedded, Tensor):
        raise GalleryError(_NO_EMBEDDINGS)
    return embedded


def _tensors(name: str, embedded: Images | Texts) -> dict[str, Tensor]:
    if isinstance(embedded, Tensor):
        return {name: embedded}
    return {f"{name}.{part}": tensor for part, tensor in embedded.tensors().items()}


def records_of(reader: ShardReader, root: str, images: Iterable[int] | None = None) -> Iterable[Record]:
    """Yield the records of the shards, or of some images, with their image URIs made absolute."""
    for index in range(len(reader)) if images is None else images:
        meta = reader.meta(index)
        uri = meta["image"]
        if root:
            uri = join(root, require_inner_name(uri, reader.where(index), ShardError))
        yield _record_from_json({**meta, "image_uri": uri})


def _require_same_images(own: Iterable[str], others: Sequence[str]) -> None:
    missing, extra = sorted(set(others) - set(own)), sorted(set(own) - set(others))
    if missing or extra:
        examples = "; ".join(
            f"{len(ids):,} are only in {whose}, such as {', '.join(ids[:3])}"
            for whose, ids in (("the first", missing), ("this", extra))
            if ids
        )
        raise GalleryError(f"the compared galleries have different images: {examples}")


def _matching_captions(record: Record, other: Record) -> list[int]:
    """Return the index in a record of each caption of another record of the same image."""
    own, wanted = (
        [re.findall(r"[^\W_]+", caption.text.casefold()) for caption in each.captions] for each in (record, other)
    )
    if sorted(own) != sorted(wanted):
        differing = next((words for words in wanted if words not in own), wanted[0] if wanted else [])
        raise GalleryError(
            f"the compared galleries have different captions of image {record.image_id}: "
            f"{len(wanted)} and {len(own)}, of which {' '.join(differing)!r} is not in both"
        )
    by_words = (sorted(range(len(each)), key=each.__getitem__) for each in (wanted, own))
    return [index for _, index in sorted(zip(*by_words, strict=True))]


def _record_from_json(item: dict[str, Any]) -> Record:
    captions = tuple(Caption(caption["caption_id"], caption["text"]) for caption in item["captions"])
    return Record(image_id=item["image_id"], image_uri=item["image_uri"], split=item["split"], captions=captions)

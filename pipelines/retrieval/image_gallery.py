"""The gallery of somebody's images, without captions: a parquet of ids and vectors, and its FAISS index.

A gallery's folder holds `gallery.json`, `skipped.csv`, and one numbered folder with `images.parquet`, the index,
`metadata.parquet` (columns) if the images are those of a table, and their digests. An update writes the next number,
followed by digits of the digests' own, and then names it in `gallery.json`, so that a killed one changes nothing.
`parts` are the images that an unfinished update has embedded; `thumbnails` are small JPEG files for the page.

B images, K views, D embedding.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch

from pipelines.registry.models import CORRECTION, newer_version, unpinned
from pipelines.retrieval.correction import Correction
from pipelines.retrieval.faiss_index import Facts, GalleryIndex
from pipelines.retrieval.gallery import METADATA, Biases, Gallery, GalleryError, read_columns
from pipelines.retrieval.gallery_storage import STATE, THUMBNAILS, content_of, mirror_of, publish_state, refresh
from pipelines.retrieval.image_files import ImageFile, rows_of
from pipelines.runtime.commands import command
from pipelines.runtime.stage import content_digest, fingerprint
from preprocessing.datasets.record import Record
from preprocessing.storage.atomic import open_atomic
from vse_core.digests import DIGESTS, check_digests, file_digest, write_digests

TABLE = "images.parquet"
VECTORS = "vectors"
# The column of what hub correction subtracts; galleries of models without it have none.
BIAS = "bias"
PARTS = "parts"
# Rows of `images.parquet` that are read for the vectors of one of them; 2 MB of 512 dimensions.
_GROUP = 1_024


class Embedded(NamedTuple):
    """Some images, their vectors (B, K, D), what hub correction subtracts (B,) if the model has it, and thumbnails."""

    files: Sequence[ImageFile]
    images_BKD: np.ndarray
    bias_B: np.ndarray | None
    thumbnails: Sequence[bytes]


def read_state(folder: Path) -> dict[str, Any] | None:
    """Return `gallery.json` (see `content_of`), as new as on the storage; None if the folder holds no gallery."""
    refresh(folder)
    return content_of((folder / STATE).read_bytes(), folder) if (folder / STATE).is_file() else None


def newer_model(folder: Path, tracking_uri: str) -> str:
    """Return a line if the model's name means another version than the one that embedded a gallery; else ""."""
    state = read_state(folder)
    if state is None or not (newer := newer_version(state["model"], tracking_uri)):
        return ""
    again = command("index", "--name", folder.name, "--model", unpinned(state["model"]))
    return f"{folder.name}: {newer}; to index the images again with it: {again}"


def bundle_origin(bundle: Path) -> dict[str, str]:
    """Return the digests of what gives the vectors and biases: the model, its extractor, its correction if any."""
    files = {"model": "model.safetensors", "extractor": DIGESTS, CORRECTION: DIGESTS}
    return {part: content_digest(bundle / part / file) for part, file in files.items() if (bundle / part).is_dir()}


def write_part(folder: Path, parts: Path, embedded: Embedded) -> pa.Table:
    """Write the thumbnails of some images, and then their rows, and return these."""
    for file, thumbnail in zip(embedded.files, embedded.thumbnails, strict=True):
        path = _thumbnail(folder, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(thumbnail)
    columns = [pa.array(column, pa.string()) for column in zip(*embedded.files, strict=True)]
    vectors_BKD = np.ascontiguousarray(embedded.images_BKD, dtype=np.float32)
    columns.append(pa.FixedShapeTensorArray.from_numpy_ndarray(vectors_BKD))
    table = pa.table(columns, names=[*ImageFile._fields, VECTORS])
    if embedded.bias_B is not None:
        table = table.append_column(BIAS, pa.array(embedded.bias_B, pa.float32()))
    write_table(parts / f"{fingerprint(embedded.files)[:16]}.parquet", table)
    return table


def write_table(path: Path, table: pa.Table, rows: int | None = None) -> None:
    """Write a table, in groups of rows; the file gets its name when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_atomic(path) as file:
        pyarrow.parquet.write_table(table, file, row_group_size=rows)


def publish(
    folder: Path,
    state: dict[str, Any],
    table: pa.Table,
    before: pa.Table | None,
    metadata: pa.Table | None,
    bank: Correction | None,
) -> Facts:
    """Write the next numbered folder, make it the current one, and remove what it replaces, if not its thumbnails.

    They stay for one update more, if the rows that it replaces are given as `before`. `metadata` has a row for each
    image, and may have others. Raises GalleryError if the gallery cannot be compressed.
    """
    number = int((state["current"] or "0").partition("-")[0]) + 1
    directory = folder / ".making"
    shutil.rmtree(directory, ignore_errors=True)  # of an update that was killed
    write_table(directory / TABLE, table, _GROUP)
    gallery = gallery_of(table)
    compression = state.get("compression") or ""
    index = GalleryIndex.build(gallery.images_BKD, gallery.texts_CD, gallery.biases, compression, bank)
    index.save(directory, _origin(state, directory))
    if metadata is not None:
        write_table(directory / METADATA, rows_of(metadata, table["image_id"]))
    write_digests(directory, TABLE, *([METADATA] if metadata is not None else []))
    current = f"{number:06d}-{file_digest(directory / DIGESTS)[:8]}"
    shutil.rmtree(folder / current, ignore_errors=True)
    directory.rename(folder / current)
    shown = set(thumbnails(folder, table).values())
    if before is not None:  # a service may still show it
        shown |= set(thumbnails(folder, before).values())
    publish_state(folder, {**state, "current": current, "storage": mirror_of(folder).address}, shown)
    for other in folder.iterdir():
        if other.is_dir() and other.name not in (current, THUMBNAILS):
            shutil.rmtree(other, ignore_errors=True)
    for path in (folder / THUMBNAILS).glob("*/*"):
        if path not in shown:
            path.unlink()
    return index.images.facts


def load_table(folder: Path, state: dict[str, Any], *, with_vectors: bool = True) -> pa.Table:
    """Read ids, addresses, biases and vectors; DigestError if the file was changed."""
    directory = folder / state["current"]
    check_digests(directory, TABLE)
    # Not read_table, which imports pandas.
    with pyarrow.parquet.ParquetFile(directory / TABLE) as file:
        return file.read([name for name in file.schema_arrow.names if with_vectors or name != VECTORS])


def load_image_gallery(
    folder: Path, state: dict[str, Any], bundle: Path
) -> tuple[Gallery, GalleryIndex, dict[str, Path], pyarrow.parquet.ParquetFile]:
    """Load a gallery without its vectors, its index, thumbnails, and the table of the vectors (`read_vectors`).

    The table is open, so that it can be read after an update has removed it. Raises GalleryError if another model has
    embedded the gallery.
    """
    if state["origin"] != bundle_origin(bundle):
        raise GalleryError(
            f"{folder} was embedded by another model than {state['model']} is now: index its images again with "
            f"{command('index', '--name', folder.name)}"
        )
    directory = folder / state["current"]
    table = load_table(folder, state, with_vectors=False)
    index = GalleryIndex.load(directory, _origin(state, directory))
    stored = pyarrow.parquet.ParquetFile(directory / TABLE)
    return gallery_of(table, read_columns(directory)), index, thumbnails(folder, table), stored


def read_vectors(stored: pyarrow.parquet.ParquetFile, image: int) -> torch.Tensor:
    """Return the vectors (1, K, D) of the image in a row of a gallery's table."""
    groups = [stored.metadata.row_group(group).num_rows for group in range(stored.num_row_groups)]
    group = int(np.searchsorted(np.cumsum(groups), image, side="right"))
    vectors_BKD = stored.read_row_group(group, [VECTORS])[VECTORS].combine_chunks().to_numpy_ndarray()
    return torch.from_numpy(vectors_BKD[[image - sum(groups[:group])]])


def image_files(table: pa.Table) -> list[ImageFile]:
    """Return the images of rows."""
    return [ImageFile(**row) for row in table.select(ImageFile._fields).to_pylist()]


def thumbnails(folder: Path, table: pa.Table) -> dict[str, Path]:
    """Return the thumbnails of rows by the ids of their images."""
    return {file.image_id: _thumbnail(folder, file) for file in image_files(table)}


def _thumbnail(folder: Path, file: ImageFile) -> Path:
    name = fingerprint(file)[:24]
    return folder / THUMBNAILS / name[:2] / f"{name}.jpg"


def _origin(state: dict[str, Any], directory: Path) -> dict[str, str]:
    return {**state["origin"], "gallery": content_digest(directory / TABLE)}


def gallery_of(table: pa.Table, columns: pa.Table | None = None) -> Gallery:
    """Return the gallery of rows; of rows without vectors, its vectors have no dimensions."""
    images_BKD = torch.empty(table.num_rows, 1, 0)
    if VECTORS in table.column_names:
        images_BKD = torch.from_numpy(table[VECTORS].combine_chunks().to_numpy_ndarray().copy())
    ids, uris = (table[name].to_pylist() for name in ("image_id", "image_uri"))
    records = tuple(Record(image_id, uri, "", ()) for image_id, uri in zip(ids, uris, strict=True))
    has_bias = BIAS in table.column_names
    biases = Biases(torch.tensor(table[BIAS].to_pylist()), torch.empty(0)) if has_bias else None
    return Gallery(images_BKD, torch.empty(0, images_BKD.shape[-1]), records, biases, columns)

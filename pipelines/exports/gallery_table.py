"""A gallery as one Parquet table, which other stores of vectors read: LanceDB, DuckDB, pgvector, Qdrant.

B images, C captions, K views, D embedding.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from torch import Tensor

from pipelines.registry.models import find_bundle
from pipelines.retrieval import image_gallery
from pipelines.retrieval.gallery import Gallery, GalleryError, read_columns
from pipelines.runtime.stage import StageError
from vse_core.evaluation.hubs import with_bias


def export_gallery(reference: str, tracking_uri: str, output: Path) -> str:
    """Write the gallery of a registered model, or one's own in a folder, as a table; return what was written.

    Raises StageError if the reference names no gallery, or its model has no embeddings.
    """
    folder = Path(reference)
    try:
        state = image_gallery.read_state(folder)
        if state is not None:
            table, columns = image_gallery.load_table(folder, state), read_columns(folder / state["current"])
            gallery, name = image_gallery.gallery_of(table, columns), state["model"]
        else:
            name, bundle = find_bundle(reference, tracking_uri)
            gallery = Gallery.load(bundle / "gallery")
        table = gallery_table(gallery, name)
    except GalleryError as error:
        raise StageError(f"{reference} cannot be exported: {error}") from error
    image_gallery.write_table(output, table)
    images, captions = len(gallery.records), len(gallery.captions)
    query = "append 1 to a query's vector and rank" if gallery.biases else "rank"
    return f"{output}: {images:,} images and {captions:,} captions; {query} by the inner product with `vector`"


def gallery_table(gallery: Gallery, model: str) -> pa.Table:
    """Return a row for each view of each image, and for each caption.

    Columns: kind (image or caption), id, address and caption (of an image the first one), view (from 0), vector, bias,
    and the further columns of the images' table, with an underscore after a name that is taken. A vector has unit
    length and D dimensions; if hubs are corrected, one more, which is less the bias: its inner product with a query's
    vector and 1 behind it is the corrected similarity.
    """
    records, captions = gallery.records, gallery.captions
    of_images_B, of_texts_C = gallery.biases or (None, None)
    firsts = [record.captions[0].text if record.captions else None for record in records]
    addresses = [record.image_uri for record in records]
    ids = [record.image_id for record in records]
    images = _rows("image", ids, addresses, firsts, gallery.images_BKD, of_images_B)
    if gallery.columns is not None:
        views = pa.array(np.repeat(np.arange(len(records)), gallery.images_BKD.shape[1]))
        for name in gallery.columns.column_names[1:]:
            free = name
            while free in images.column_names or (free != name and free in gallery.columns.column_names):
                free += "_"
            images = images.append_column(free, gallery.columns[name].take(views))
    texts = _rows(
        "caption",
        [caption.caption_id for _, caption in captions],
        [addresses[image] for image, _ in captions],
        [caption.text for _, caption in captions],
        gallery.texts_CD.unsqueeze(1),
        of_texts_C,
    )
    table = pa.concat_tables([images, texts], promote_options="default") if captions else images
    return table.replace_schema_metadata({"vse.model": model, "vse.is_corrected": str(gallery.biases is not None)})


def _rows(
    kind: str,
    ids: Sequence[str],
    addresses: Sequence[str],
    captions: Sequence[str | None],
    items_BKD: Tensor,
    bias_B: Tensor | None,
) -> pa.Table:
    items, views = items_BKD.shape[:2]
    vectors = (items_BKD if bias_B is None else with_bias(items_BKD, bias_B)).float().flatten(0, 1).numpy()
    rows = np.repeat(np.arange(items), views)
    biases = pa.nulls(items, pa.float32()) if bias_B is None else pa.array(bias_B.numpy(), pa.float32())
    columns = {name: pa.array(column, pa.string()).take(rows) for name, column in (
        ("id", ids), ("address", addresses), ("caption", captions)
    )}  # fmt: skip
    return pa.table(
        {
            "kind": pa.array([kind] * len(rows)),
            **columns,
            "view": pa.array(np.tile(np.arange(views), items)),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1]),
            "bias": biases.take(pa.array(rows)),
        }
    )

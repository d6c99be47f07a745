"""The registered model as MLflow runs it: texts or images in, embeddings out.

MLflow keeps a copy of this file beside the model and executes it on loading ("models from code"), so that nothing is
pickled.
"""

import base64
import binascii
import math
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.exceptions import MlflowException

from pipelines.embedder import Embedder, QueryError
from pipelines.gallery import Gallery

_SHOWN = 120  # characters of a bad input that its message repeats: a data URI may have millions


class VisualSemanticEmbedding(mlflow.pyfunc.PythonModel):
    """Embeds texts and images into one space, where the inner product of two unit vectors says how well they fit.

    Input: a DataFrame with the columns `text` and `image`, or one of them; each row carries one of the two.
        text: a sentence.
        image: a path on the machine of the model, a `scene://` URI, or the bytes of an image file as a data URI
            (`data:image/jpeg;base64,...`).

    Output: a DataFrame with one row for each row of the input, under the same index.
        embedding: list of floats; a text has D of them, an image K * D, view after view (K = 1 for models of one view).
        views: K. A text has one view.

    The similarity of a text and an image is the largest inner product over the image's views.
    """

    embedder: Embedder

    def load_context(self, context: Any) -> None:
        """Build the model from the artifacts, on CUDA where there is one."""
        self._directories = {name: Path(path) for name, path in context.artifacts.items()}
        self.embedder = Embedder(self._directories["model"], self._directories["extractor"])

    @cached_property
    def gallery(self) -> Gallery:
        """The embedded split that the model was registered with; read when first asked for."""
        return Gallery.load(self._directories["gallery"])

    def predict(self, model_input: pd.DataFrame) -> pd.DataFrame:
        """Embed every row.

        Raises:
            MlflowException: a row carries neither a text nor an image, or both, or something that cannot be embedded;
                the message names the row, counted from 0.
        """
        texts, images = _split_rows(model_input)
        embeddings: dict[int, tuple[list[float], int]] = {}
        try:
            embeddings |= self._embed_texts(texts)
            embeddings |= self._embed_images(images)
        except QueryError as error:
            given = {**texts, **images}[error.position]
            shown = given if len(given) <= _SHOWN else f"{given[:_SHOWN]}..."
            message = f"row {error.position} ({shown!r}): {error.reason}"
            raise MlflowException.invalid_parameter_value(message) from error
        rows = [embeddings[row] for row in range(len(model_input))]
        columns = {"embedding": [row[0] for row in rows], "views": [row[1] for row in rows]}
        return pd.DataFrame(columns, index=model_input.index)

    def _embed_texts(self, texts: dict[int, str]) -> dict[int, tuple[list[float], int]]:
        """Embed the rows with texts: row -> (D floats, 1)."""
        if not texts:
            return {}
        rows = list(texts)
        try:
            texts_CD = self.embedder.embed_texts(list(texts.values()))
        except QueryError as error:
            raise QueryError(rows[error.position], error.reason) from error
        return {row: (vector, 1) for row, vector in zip(rows, texts_CD.tolist(), strict=True)}

    def _embed_images(self, images: dict[int, str]) -> dict[int, tuple[list[float], int]]:
        """Embed the rows with images: row -> (K * D floats, K)."""
        if not images:
            return {}
        rows = list(images)
        with tempfile.TemporaryDirectory(prefix="vse-images-") as folder:
            uris = [_materialise(row, uri, Path(folder)) for row, uri in images.items()]
            try:
                images_BKD = self.embedder.embed_images(uris)
            except QueryError as error:
                raise QueryError(rows[error.position], error.reason) from error
        views = images_BKD.shape[1]
        return {row: (vector, views) for row, vector in zip(rows, images_BKD.flatten(1).tolist(), strict=True)}


def _split_rows(model_input: pd.DataFrame) -> tuple[dict[int, str], dict[int, str]]:
    """Sort the rows into texts and images, by row number, and refuse those that are neither or both."""
    unknown = [str(name) for name in model_input.columns if name not in ("text", "image")]
    if unknown or not len(model_input.columns):
        raise MlflowException.invalid_parameter_value(
            f"the input needs a column 'text' or 'image' or both; got {', '.join(unknown) or 'no column'}"
        )
    texts: dict[int, str] = {}
    images: dict[int, str] = {}
    for row, cells in enumerate(model_input.to_dict(orient="records")):
        filled = {str(name): cell for name, cell in cells.items() if not _is_missing(cell)}
        if len(filled) != 1:
            found = "both" if filled else "neither"
            raise MlflowException.invalid_parameter_value(f"row {row}: give one of 'text' and 'image'; got {found}")
        ((name, cell),) = filled.items()
        if not isinstance(cell, str):
            kind = type(cell).__name__
            raise MlflowException.invalid_parameter_value(f"row {row}: '{name}' must be a string, got {kind}")
        (texts if name == "text" else images)[row] = cell
    return texts, images


def _is_missing(cell: Any) -> bool:
    """Whether a cell is empty in one of pandas' ways."""
    return cell is None or cell is pd.NA or (isinstance(cell, float) and math.isnan(cell))


def _materialise(row: int, uri: str, folder: Path) -> str:
    """Write the bytes of a data URI to a file and return its path; any other URI is returned as it is."""
    if not uri.startswith("data:"):
        return uri
    header, comma, payload = uri.partition(",")
    if not comma or not header.endswith(";base64"):
        raise QueryError(row, "a data URI must read data:image/...;base64,...")
    try:
        data = base64.b64decode(payload, validate=True)
    except binascii.Error as error:
        raise QueryError(row, f"the data URI is not valid base64 ({error})") from error
    path = folder / f"row-{row}"
    path.write_bytes(data)
    return str(path)


mlflow.models.set_model(VisualSemanticEmbedding())

"""The registered model as MLflow runs it: texts or images in, embeddings out.

MLflow keeps a copy of this file with the model and executes it on loading ("models from code"), so that nothing is
pickled. Our packages lie next to it in one archive, `code/packages.zip`.
"""

import atexit
import base64
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.exceptions import MlflowException
from torch import Tensor


def _unpack_code() -> None:
    """Let imports find the packages that were registered with the model, unpacked until this process ends.

    They are unpacked since they read files next to their modules. The archive is as trusted as this file.
    """
    for archive in Path(__file__).parent.glob("code/*.zip"):  # absent while a model is being registered
        folder = tempfile.mkdtemp(prefix="vse-code-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)
        sys.path.insert(0, folder)


_unpack_code()

from pipelines.inference.embedder import Embedder, QueryError  # noqa: E402
from pipelines.registry.models import CORRECTION  # noqa: E402
from pipelines.retrieval.correction import Correction  # noqa: E402
from vse_core.digests import DIGESTS, check_bundle  # noqa: E402

_SHOWN = 120  # characters of a bad input in its message; a data URI may have millions


class VisualSemanticEmbedding(mlflow.pyfunc.PythonModel):
    """Embeds texts and images into one space, where the inner product of two unit vectors is their similarity.

    Input: a DataFrame with the columns `text` and `image`, or one of them; each row carries one of them.
        text: a sentence.
        image: the bytes of an image file, as they are, as base64 or as a data URI (`data:image/jpeg;base64,...`). No
            path: a server that others ask would read its machine's files.

    Output: a DataFrame with one row for each row of the input, under the same index.
        embedding: D floats of a text, K * D of an image, view after view (K = 1 for models of one view).
        views: K. A text has one view.
        bias: what is subtracted from the similarities of a row as an item that is searched for; 0 by a model that
            corrects no hubs.

    The similarity of a text and an image is the largest inner product over the image's views.
    """

    embedder: Embedder
    correction: Correction | None

    def load_context(self, context: Any) -> None:
        """Build the model from the artifacts, on CUDA if there is a GPU."""
        check_bundle(Path(context.artifacts[DIGESTS]).parent, "the registered model")
        self.embedder = Embedder(Path(context.artifacts["model"]), Path(context.artifacts["extractor"]))
        part = context.artifacts.get(CORRECTION)
        self.correction = None if part is None else Correction.load(Path(part))

    def predict(self, model_input: pd.DataFrame) -> pd.DataFrame:
        """Embed every row; MlflowException with the number of a row, from 0, that has both, neither, or a bad one."""
        embeddings: dict[int, tuple[list[float], int, float]] = {}
        for name, cells in _split_rows(model_input).items():
            rows, values = list(cells), list(cells.values())
            try:
                embedded_BKD = self._embed(name, values)
            except QueryError as error:
                row = rows[error.position]
                shown = f" ({_shortened(cells[row])})" if isinstance(cells[row], str) else ""
                raise MlflowException.invalid_parameter_value(f"row {row}{shown}: {error.reason}") from error
            bias = self._bias(name, embedded_BKD)
            for row, vector, subtracted in zip(rows, embedded_BKD.flatten(1).tolist(), bias, strict=True):
                embeddings[row] = (vector, embedded_BKD.shape[1], subtracted)
        ordered = [embeddings[row] for row in range(len(model_input))]
        return pd.DataFrame(ordered, columns=["embedding", "views", "bias"], index=model_input.index)

    def _bias(self, name: str, embedded_BKD: Tensor) -> list[float]:
        if self.correction is None:
            return [0.0] * len(embedded_BKD)
        of_items = self.correction.texts_bias if name == "text" else self.correction.images_bias
        return of_items(embedded_BKD).tolist()

    def _embed(self, name: str, values: list[Any]) -> Tensor:
        """Embed the values of a column: (B, K, D); texts have one view."""
        if name == "text":
            return self.embedder.embed_texts(values).unsqueeze(1)
        with tempfile.TemporaryDirectory(prefix="vse-images-") as folder:
            paths = [Path(folder, str(position)) for position in range(len(values))]
            for position, image in enumerate(values):
                paths[position].write_bytes(image if isinstance(image, bytes) else _decoded(position, image))
            return self.embedder.embed_images(list(map(str, paths)))


def _split_rows(model_input: pd.DataFrame) -> dict[str, dict[int, Any]]:
    """Return column -> row number -> cell; refuse rows with no cell or several."""
    unknown = [str(name) for name in model_input.columns if name not in ("text", "image")]
    if unknown or not len(model_input.columns):
        raise MlflowException.invalid_parameter_value(
            f"the input needs the columns 'text' and 'image', or one of them; got {', '.join(unknown) or 'no column'}"
        )
    given: dict[str, dict[int, Any]] = {}
    for row, cells in enumerate(model_input.to_dict(orient="records")):
        filled = {str(name): cell for name, cell in cells.items() if pd.isna(cell) is not True}
        if len(filled) != 1:
            found = " and ".join(f"'{name}'" for name in filled) or "none"
            raise MlflowException.invalid_parameter_value(f"row {row}: give one of 'text' and 'image'; got {found}")
        ((name, cell),) = filled.items()
        types, allowed = (str | bytes, "a string or bytes") if name == "image" else (str, "a string")
        if not isinstance(cell, types):
            kind = type(cell).__name__
            raise MlflowException.invalid_parameter_value(f"row {row}: '{name}' must be {allowed}, got {kind}")
        given.setdefault(name, {})[row] = cell
    return given


def _shortened(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def _decoded(position: int, text: str) -> bytes:
    """Return the bytes of base64, alone or in a data URI."""
    header, comma, payload = text.partition(",") if text.startswith("data:") else ("data:;base64", ",", text)
    if not comma or not header.endswith(";base64"):
        raise QueryError(position, "a data URI must read data:image/...;base64,...")
    try:
        return base64.b64decode(payload, validate=True)
    except ValueError as error:
        raise QueryError(position, f"not base64 ({error}); give the bytes of the image") from error


mlflow.models.set_model(VisualSemanticEmbedding())

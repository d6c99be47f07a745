"""Both towers of a model as ONNX graphs, for runtimes without PyTorch.

B images, N features of width F, S side of the pixels; C captions, L tokens; K views, D dimensions.
"""

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from vse_core.evaluation.hubs import hub_bias
from vse_core.models.model import Model, TwoTower
from vse_core.similarity import unit_length

IMAGES, TEXTS = "images.onnx", "texts.onnx"
IMAGES_BIAS, TEXTS_BIAS = "images_bias.onnx", "texts_bias.onnx"


class OnnxError(ValueError):
    """A model has no form in ONNX; the message says why."""


class _Pixels(nn.Module):
    """Pixels (B, 3, S, S), red first, from 0 to 255, become (B, K, D)."""

    def __init__(self, model: Model, cells: int) -> None:
        super().__init__()
        self.encode, self.cells = model.image_encoder, cells

    def forward(self, pixels: Tensor) -> Tensor:
        kept_BN = torch.ones(pixels.shape[0], self.cells, dtype=torch.bool)
        images_BKD: Tensor = self.encode(pixels, kept_BN)
        return images_BKD


class _Bias(nn.Module):
    """What hub correction subtracts from the similarities of items (N, K, D) or (N, D), see `hub_bias`."""

    bank_XD: Tensor

    def __init__(self, bank_MVD: Tensor, temperature: float) -> None:
        super().__init__()
        self.register_buffer("bank_XD", bank_MVD.flatten(0, 1).float())
        self.views, self.temperature = bank_MVD.shape[1], temperature

    def forward(self, items: Tensor) -> Tensor:
        items_NKD = items if items.dim() == 3 else items.unsqueeze(1)
        sims_NKMV = (items_NKD @ self.bank_XD.T).unflatten(2, (-1, self.views))
        best_NM = sims_NKMV.amax(dim=(1, 3))
        bias_N: Tensor = self.temperature * (best_NM / self.temperature).logsumexp(dim=1)
        return bias_N


def export_bias(bank_MVD: Tensor, temperature: float, views: int, path: Path) -> float:
    """Write the graph of hub correction: ``embeddings`` of items, as their tower gives them, become their ``bias``.

    `views` is K of the items; 0 if they are captions (N, D). Returns the largest difference from `hub_bias`.
    """
    import onnxruntime

    generator = torch.Generator().manual_seed(0)
    shape = (5, views, bank_MVD.shape[2]) if views else (5, bank_MVD.shape[2])
    items = unit_length(torch.randn(shape, generator=generator))
    _write(_Bias(bank_MVD, temperature), (items,), ({0: Dim.DYNAMIC},), ("embeddings",), path, "bias")
    theirs: Any = onnxruntime.InferenceSession(path).run(None, {"embeddings": items.numpy()})[0]
    ours = hub_bias(items if views else items.unsqueeze(1), bank_MVD, temperature)
    return float((ours - torch.from_numpy(theirs)).abs().max())


def export_onnx(model: Model, directory: Path) -> None:
    """Write ``images.onnx`` and ``texts.onnx``: graphs for any number of inputs of any lengths.

    ``texts.onnx`` takes ``tokens`` (C, L) and ``lengths`` (C,), both int64, and gives ``embeddings`` (C, D).
    ``images.onnx`` takes ``features`` (B, N, F) and ``lengths`` (B,), or ``pixels`` (B, 3, S, S) from 0 to 255, and
    gives ``embeddings`` (B, K, D). Rows at or beyond a length are padding, of any value. The model must be on the CPU.

    Raises OnnxError for a model that reads more than features or pixels and token ids.
    """
    if not isinstance(model, TwoTower):
        raise OnnxError(
            f"a {type(model).__name__} has no ONNX form: it reads what a parser finds in captions, not tensors alone; "
            "two-tower models have one"
        )
    directory.mkdir(parents=True, exist_ok=True)
    axes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, {0: Dim.DYNAMIC}
    # Captions of open_clip have one length.
    length = getattr(getattr(model.text_encoder, "tower", None), "length", None)
    tokens = (torch.ones(3, length or 5, dtype=torch.long), torch.tensor([5, 2, 3]))
    _write(
        model.text_encoder,
        tokens,
        axes if length is None else (axes[1], axes[1]),
        ("tokens", "lengths"),
        directory / TEXTS,
    )
    tower, images = _image_inputs(model)
    names = ("pixels",) if isinstance(tower, _Pixels) else ("features", "lengths")
    _write(tower, images, axes[-len(names) :], names, directory / IMAGES)


def _image_inputs(model: Model) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Return what encodes images, and four random ones: sets of 1 to 9 features, or pixels."""
    encoder: Any = model.image_encoder
    generator = torch.Generator().manual_seed(0)
    if hasattr(encoder, "image_size"):
        side = encoder.image_size
        return _Pixels(model, encoder.cells), (torch.rand(4, 3, side, side, generator=generator) * 255,)
    features_BNF = torch.randn(4, 9, encoder.feature_dim, generator=generator)
    return encoder, (features_BNF, torch.tensor([1, 9, 4, 2]))


def onnx_difference(model: Model, directory: Path, captions: Sequence[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Return the largest absolute difference of either graph in onnxruntime from the model, by its file.

    The captions are batches of tokens (C, L) and lengths (C,).
    """
    import onnxruntime

    texts = [(model.text_encoder, batch) for batch in captions]
    differences = {}
    for name, inputs in ((IMAGES, [_image_inputs(model)]), (TEXTS, texts)):
        session = onnxruntime.InferenceSession(directory / name)
        names = [entry.name for entry in session.get_inputs()]
        found = []
        for tower, given in inputs:
            theirs: Any = session.run(None, {key: value.numpy() for key, value in zip(names, given, strict=True)})[0]
            with torch.no_grad():
                found.append(float((tower(*given) - torch.from_numpy(theirs)).abs().max()))
        differences[name] = max(found)
    return differences


def _write(
    tower: nn.Module,
    example: tuple[Tensor, ...],
    shapes: tuple[dict[int, Dim], ...],
    names: tuple[str, ...],
    path: Path,
    output: str = "embeddings",
) -> None:
    logging.disable(logging.WARNING)  # the exporter names every node that it does not fold
    try:
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):
            program = torch.onnx.export(
                tower.eval(),
                example,
                dynamo=True,
                dynamic_shapes=shapes,
                input_names=names,
                output_names=[output],
                verbose=False,
            )
    finally:
        logging.disable(logging.NOTSET)
    assert program is not None
    program.save(path)

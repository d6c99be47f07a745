"""Grid features: the last hidden state of any vision backbone that transformers' auto classes can load."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers
from PIL import Image
from safetensors import SafetensorError
from transformers import AutoConfig, AutoImageProcessor, AutoModel

from preprocessing.features.extractor import ExtractorError, FeaturesNF
from preprocessing.features.images import MAX_PIXELS, ImageError, load_image

_VERSION = 1
_BACKEND = "pil"

# B images, C channels, H x W pixels or cells, N = H * W set elements, F feature width.
PixelsCHW = npt.NDArray[np.float32]

# What transformers, huggingface_hub and safetensors raise for weights or settings that cannot be loaded.
_LOADING_ERRORS = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    ImportError,
    RuntimeError,
    SafetensorError,
)


class GridExtractor:
    """The cells (or patches) of a backbone's `last_hidden_state` as a set of vectors.

    A convolutional state (B, F, H, W) becomes (H * W, F) in row-major order of the cells, as in VSE-infinity's grid
    models; a transformer's (B, N, F) stays as it is, with its class token. Weights are read from safetensors only and
    computed in float32; the result is float16.

    Args:
        weights: a folder with config.json, preprocessor_config.json and *.safetensors, or a hub id.
        device: where the model runs, as torch names it.
        seed: initialises the network from this number instead of loading it; `weights` is then a folder with the two
            JSON files only. The same seed gives the same network in every process.

    Raises:
        ExtractorError: the weights cannot be found or loaded, lack parameters that the features need, or belong to a
            model without such a state; or there is no such device.
    """

    name = "grid"

    def __init__(self, weights: str, device: str = "cpu", seed: int | None = None) -> None:
        self._weights = weights
        self._device = _checked_device(device)
        folder = _local_folder(weights)
        if folder is not None:
            _check_files(folder, seeded=seed is not None)
        elif seed is not None:
            raise ExtractorError(f"a seed was given with the hub id {weights!r}; a seed needs a folder of config files")
        self._seed = seed
        with _errors_named(weights), _quiet_transformers():
            self._processor = AutoImageProcessor.from_pretrained(
                weights, backend=_BACKEND, local_files_only=folder is not None
            )
            model, fresh = _load_model(weights, folder is not None) if seed is None else _random_model(weights, seed)
        self._config_digest = _config_digest(model.config)
        self._weights_digest = _weights_digest(model, fresh)
        model.eval().requires_grad_(False)
        self._model = model.to(self._device).to(memory_format=torch.channels_last)
        self._check_processor()
        self._check_model()

    def load(self, uri: str) -> PixelsCHW:
        """One image as the model's normalised pixels, (3, H, W) float32.

        Raises:
            ImageError: it cannot be read, decoded or brought to the model's size.
        """
        return self._pixels(load_image(uri))

    def __call__(self, items: Sequence[PixelsCHW]) -> list[FeaturesNF]:
        """The features (N, F) float16 of each image of a batch, computed in one forward pass.

        Raises:
            ExtractorError: a feature is not finite in float16.
        """
        if not items:
            return []
        pixels_BCHW = torch.from_numpy(np.stack(items))
        state_BNF = self._forward(pixels_BCHW)
        features_BNF = state_BNF.to(torch.float16).cpu().contiguous()
        finite_B = torch.isfinite(features_BNF).flatten(1).all(dim=1)
        if not bool(finite_B.all()):
            worst = int(torch.nonzero(~finite_B)[0])
            raise ExtractorError(
                f"{self._weights}: image {worst} of a batch of {len(items)} has features that are NaN or beyond the "
                f"range of float16 (largest {float(state_BNF[worst].abs().max()):.3g}, limit 65504); the weights are "
                "damaged or not meant for these preprocessor settings"
            )
        return list(features_BNF.numpy())

    def identity(self) -> dict[str, Any]:
        """Digests of weights and configuration, the processor's settings, its backend, and the seed if there is one.

        The device is left out: it changes features by float rounding only.
        """
        return {
            "extractor": "grid",
            "version": _VERSION,
            "config_sha256": self._config_digest,
            "weights_sha256": self._weights_digest,
            "seed": self._seed,
            "processor": self._processor_settings(),
            "backend": _BACKEND,
        }

    @torch.inference_mode()
    def _forward(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """(B, N, F) float32, N in row-major order of the cells."""
        pixels_BCHW = pixels_BCHW.to(self._device, memory_format=torch.channels_last)
        state: torch.Tensor = self._model(pixel_values=pixels_BCHW).last_hidden_state
        return state.flatten(2).transpose(1, 2) if state.ndim == 4 else state

    def _pixels(self, image: Image.Image) -> PixelsCHW:
        self._check_aspect(image)
        try:
            pixels = self._processor(images=image, return_tensors="np")["pixel_values"][0]
        except (ValueError, OSError, MemoryError, ArithmeticError) as error:
            raise ImageError(f"cannot be brought to the model's size: {error or type(error).__name__}") from error
        return np.ascontiguousarray(pixels, dtype=np.float32)

    def _check_aspect(self, image: Image.Image) -> None:
        """Refuses images so narrow that scaling their short edge would blow the long one up beyond all bounds."""
        edge = self._processor_settings().get("size", {}).get("shortest_edge")
        if edge is None:
            return
        short, long = sorted(image.size)
        if edge * edge * long > MAX_PIXELS * short:
            raise ImageError(
                f"{image.width} x {image.height} pixels is too narrow to be scaled to a short edge of {edge}"
            )

    def _check_processor(self) -> None:
        """The processor must give every image the same size, or batches could not be formed."""
        try:
            shapes = {self._pixels(Image.new("RGB", size)).shape for size in ((64, 48), (48, 64))}
        except ImageError as error:
            raise ExtractorError(f"{self._weights}: the image processor fails on a plain image: {error}") from error
        if len(shapes) > 1:
            raise ExtractorError(
                f"{self._weights}: the image processor gives images of different sizes {sorted(shapes)}; set 'size' to "
                "a height and width, or 'do_center_crop', in preprocessor_config.json"
            )

    def _check_model(self) -> None:
        """One forward pass, so that a model of another kind is told from one of ours before any work starts."""
        pixels = self._pixels(Image.new("RGB", (64, 64), (120, 120, 120)))
        try:
            state = self._forward(torch.from_numpy(pixels[None]))
        except (TypeError, ValueError, RuntimeError, AttributeError, LookupError) as error:
            raise ExtractorError(
                f"{self._weights}: {type(self._model).__name__} gives no last_hidden_state for pixels alone "
                f"({_first_line(error)}); name a vision backbone"
            ) from error
        if state.ndim != 3:
            raise ExtractorError(
                f"{self._weights}: last_hidden_state of shape {tuple(state.shape)}, where (B, N, F) or (B, F, H, W) "
                "is needed; name a vision backbone"
            )

    def _processor_settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = json.loads(self._processor.to_json_string())
        return settings


def _checked_device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ExtractorError(f"device {name!r} cannot be used ({_first_line(error)}); use 'cpu'") from error
    return device


def _local_folder(weights: str) -> Path | None:
    """The folder that `weights` names, or None where it can only be a hub id ("name" or "owner/name").

    Raises:
        ExtractorError: it is written as a path and there is no such folder.
    """
    path = Path(weights).expanduser()
    if path.is_dir():
        return path
    if weights.startswith(("/", ".", "~")) or weights.count("/") > 1 or path.exists():
        raise ExtractorError(
            f"weights: there is no folder {path.absolute()}; name one that holds config.json, "
            "preprocessor_config.json and *.safetensors, or a hub id such as microsoft/resnet-50"
        )
    return None


def _check_files(folder: Path, seeded: bool) -> None:
    for name in ("config.json", "preprocessor_config.json"):
        if not (folder / name).is_file():
            raise ExtractorError(f"weights: {folder} holds no {name}; copy it there from the model's release")
    has_weights = any(folder.glob("*.safetensors"))
    if seeded and has_weights:
        raise ExtractorError(f"weights: {folder} holds weights, and a seed was given; leave out the seed to use them")
    if not seeded and not has_weights:
        raise ExtractorError(
            f"weights: {folder} holds no *.safetensors; copy the weights there (transformers' save_pretrained converts "
            "older formats), or give a seed for a randomly initialised network"
        )


def _load_model(weights: str, local: bool) -> tuple[torch.nn.Module, set[str]]:
    """The backbone, and the names of its parameters that the weights do not hold (they do not reach the features).

    Raises:
        ExtractorError: parameters that the features need are missing or of another shape.
    """
    model, report = AutoModel.from_pretrained(
        weights, dtype=torch.float32, use_safetensors=True, local_files_only=local, output_loading_info=True
    )
    missing = set(report["missing_keys"])
    # The pooling head comes after last_hidden_state; many classifiers are published without it.
    needed = sorted(name for name in missing if not name.startswith("pooler."))
    wrong = sorted(str(entry[0]) for entry in report["mismatched_keys"])
    if needed or wrong:
        raise ExtractorError(
            f"{weights}: the weights do not fit config.json: {len(needed)} parameters are missing {needed[:3]} and "
            f"{len(wrong)} have another shape {wrong[:3]}; fetch weights and config.json from the same release"
        )
    return model, missing


def _random_model(weights: str, seed: int) -> tuple[torch.nn.Module, set[str]]:
    """The backbone of config.json with parameters that depend on the seed alone; torch's own generator is untouched."""
    config = AutoConfig.from_pretrained(weights, local_files_only=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModel.from_config(config, dtype=torch.float32)
    return model, set()


def _config_digest(config: Any) -> str:
    settings = config.to_dict()
    for name in ("_name_or_path", "transformers_version"):  # where and with what it was loaded
        settings.pop(name, None)
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()


def _weights_digest(model: torch.nn.Module, fresh: set[str]) -> str:
    """sha256 over names, types, shapes and values of all parameters and buffers but the freshly initialised ones."""
    digest = hashlib.sha256()
    state: Mapping[str, torch.Tensor] = model.state_dict()
    for name in sorted(set(state) - fresh):
        tensor = state[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]


@contextmanager
def _errors_named(weights: str) -> Iterator[None]:
    """Turns whatever loading raises into one ExtractorError that says what and how to mend it."""
    try:
        yield
    except _LOADING_ERRORS as error:
        raise ExtractorError(
            f"weights {weights!r} cannot be loaded ({type(error).__name__}: {_first_line(error)}); check that the "
            "folder is a complete copy with safetensors weights, or that the hub id exists and the network reaches the "
            "hub (with no network, download the model elsewhere and name the folder)"
        ) from error


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Without transformers' progress bars and load reports; what matters of them is checked and raised here."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()

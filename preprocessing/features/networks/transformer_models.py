"""Vision networks of transformers and timm: any CNN or vision transformer that the auto classes know."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from transformers import MODEL_MAPPING, AutoConfig, AutoImageProcessor, AutoModel

from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import MAX_PIXELS, ImageError
from preprocessing.features.networks.network import Network, NetworkOptions, Normalization, PixelsCHW
from preprocessing.features.weights import weights_digest
from preprocessing.reading import damage_as, has_image_settings

_BACKEND = "pil"
_REMEDY = (
    "check that the folder has config.json and safetensors weights (for random ones give a seed), or that the hub id "
    "exists and the network reaches the hub; without one, name a folder that was downloaded elsewhere"
)


def load_transformers(options: NetworkOptions) -> Network:
    """A network whose state is its `last_hidden_state`; of a model of images and texts (CLIP) the vision tower.

    Weights are read from safetensors only. `weights` names a folder with config.json, preprocessor_config.json or
    processor_config.json (timm's have none) and *.safetensors, or a hub id; with a seed a folder with the JSON files
    only. `image_size` replaces what these say, but for mean and deviation. Errors as of `build_cnn`.
    """
    weights, seed = options.weights, options.seed
    if weights is None:
        raise ExtractorError("'weights' is missing: name a folder or hub id (or a network of torchvision by 'network')")
    folder = _local_folder(weights)
    if seed is not None and folder is None:
        raise ExtractorError(f"a seed was given with the hub id {weights!r}; a seed needs a folder of config files")
    if seed is not None and any(Path(weights).expanduser().glob("*.safetensors")):
        raise ExtractorError(f"weights: {folder} holds weights, and a seed was given; leave out the seed to use them")
    with damage_as(ExtractorError, f"weights {weights!r} cannot be loaded", _REMEDY), _quiet_transformers():
        origin: dict[str, Any] = {"local_files_only": folder is not None, "trust_remote_code": False}
        config = AutoConfig.from_pretrained(weights, **origin)
        if hasattr(config, "auto_map"):
            raise ValueError("config.json names code of its own, auto_map, which never runs here")
        if seed is not None or not _has_two_towers(config):
            config = getattr(config, "vision_config", config)
            if (read := _network_class(config).main_input_name) != "pixel_values":
                raise ExtractorError(f"{weights}: {config.model_type} reads {read}, no images; name a vision network")
        if folder is not None and not has_image_settings(folder):
            raise ExtractorError(
                f"weights: {folder} does not say how images are prepared: copy preprocessor_config.json, or of "
                "transformers 5 processor_config.json, there from the model's release; of timm config.json has it"
            )
        processor = AutoImageProcessor.from_pretrained(weights, backend=_BACKEND, **origin)
        model, fresh = _load_model(weights, config, origin) if seed is None else _random_model(config, seed)
    identity = {
        "config_sha256": _config_digest(model.config),
        "weights_sha256": weights_digest({name: t for name, t in model.state_dict().items() if name not in fresh}),
        "processor": json.loads(processor.to_json_string()),
        "backend": _BACKEND,
    }
    size = options.image_size
    pixels = _processed(processor) if size is None else partial(_normalization(processor).pixels, image_size=size)
    return Network(options, weights, model, partial(_last_state, model), pixels, identity)


def _last_state(model: Any, pixels_BCHW: torch.Tensor) -> torch.Tensor:
    """The last state, of all that the model gives: class token first, or channels first."""
    state: torch.Tensor = model(pixel_values=pixels_BCHW).last_hidden_state
    timm: Any = getattr(model, "timm_model", None)
    if getattr(timm, "output_fmt", None) == "NHWC":
        return state.permute(0, 3, 1, 2)
    # The tokens of timm before the patches may be registers alone, which no extractor wants.
    return state[:, timm.num_prefix_tokens :] if getattr(timm, "cls_token", state) is None else state


def _processed(processor: Any) -> Callable[[Image.Image], PixelsCHW]:
    """Return a function from an image to its pixels as the model's own image processor makes them."""
    edge = _short_edge(processor)

    def pixels(image: Image.Image) -> PixelsCHW:
        short, long = sorted(image.size)
        # So narrow that scaling its short edge would blow the long one up beyond all bounds.
        if edge is not None and edge * edge * long > MAX_PIXELS * short:
            raise ImageError(f"{image.width} x {image.height} pixels is too narrow for a short edge of {edge}")
        try:
            if hasattr(processor, "val_transforms"):  # timm's
                return np.ascontiguousarray(processor.val_transforms(image).numpy())
            values = processor(images=image, return_tensors="np")["pixel_values"][0]
        except (ValueError, OSError, MemoryError, ArithmeticError) as error:
            raise ImageError(f"cannot be brought to the model's size: {error or type(error).__name__}") from error
        return np.ascontiguousarray(values, dtype=np.float32)

    return pixels


def _short_edge(processor: Any) -> int | None:
    """The length that an image's short edge is scaled to while its aspect ratio stays, if it does."""
    if hasattr(processor, "data_config"):  # timm's: the size that it then crops from
        sides, crop = processor.data_config["input_size"][1:], processor.data_config["crop_pct"]
        return int(max(sides) / crop) if processor.data_config["crop_mode"] == "center" else None
    edge: int | None = json.loads(processor.to_json_string()).get("size", {}).get("shortest_edge")
    return edge


def _normalization(processor: Any) -> Normalization:
    if hasattr(processor, "data_config"):  # timm's, of pixels from 0 to 1
        mean, std = (np.multiply(processor.data_config[name], 255).tolist() for name in ("mean", "std"))
        return Normalization(mean, std)
    scale = processor.rescale_factor if processor.do_rescale else 1.0
    mean, std = (processor.image_mean, processor.image_std) if processor.do_normalize else ((0.0,) * 3, (1.0,) * 3)
    bgr = bool(getattr(processor, "do_flip_channel_order", False))
    return Normalization([value / scale for value in mean], [value / scale for value in std], bgr)


def _local_folder(weights: str) -> Path | None:
    """The folder that `weights` names, or None if it can only be a hub id ("name" or "owner/name")."""
    path = Path(weights).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        raise ExtractorError(f"weights: {path} is a file; name a network of torchvision for it by 'network'")
    if weights.startswith(("/", ".", "~")) or weights.count("/") > 1 or path.exists():
        raise ExtractorError(
            f"weights: there is no folder {path.absolute()}; name one that holds config.json, "
            "*.safetensors and settings for images, or a hub id such as microsoft/resnet-50"
        )
    return None


def _has_two_towers(config: Any) -> bool:
    """Return whether a checkpoint has a tower of texts and, under the name `vision_model`, one of images (CLIP)."""
    if not hasattr(config, "text_config") or type(config) not in MODEL_MAPPING:
        return False
    with torch.device("meta"):
        return hasattr(AutoModel.from_config(config), "vision_model")


def _load_model(weights: str, config: Any, origin: dict[str, Any]) -> tuple[torch.nn.Module, set[str]]:
    """The network, of a dual encoder its image tower, and the names of those parameters that the weights lack."""
    if getattr(config, "model_args", None):  # timm names the classes, which the network is built without
        config.model_args = {key: value for key, value in config.model_args.items() if key != "num_classes"}
    options = {"config": config, "dtype": torch.float32, "use_safetensors": True, "output_loading_info": True}
    model, report = AutoModel.from_pretrained(weights, **options, **origin)
    part = "vision_model." if hasattr(config, "text_config") else ""
    missing = {name.removeprefix(part) for name in report["missing_keys"] if name.startswith(part)}
    # The pooling head comes after last_hidden_state; many classifiers are published without it.
    needed = sorted(name for name in missing if not name.startswith("pooler."))
    wrong = sorted(name for name in (str(entry[0]) for entry in report["mismatched_keys"]) if name.startswith(part))
    if needed or wrong:
        raise ExtractorError(
            f"{weights}: the weights do not fit config.json: {len(needed)} parameters are missing {needed[:3]} and "
            f"{len(wrong)} have another shape {wrong[:3]}; fetch weights and config.json from the same release"
        )
    return model.vision_model if part else model, missing


def _random_model(config: Any, seed: int) -> tuple[torch.nn.Module, set[str]]:
    """A backbone with parameters that depend on the seed alone; torch's own generator is untouched."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False), set()


def _network_class(config: Any) -> Any:
    """The class that AutoModel has for a network."""
    if type(config) not in MODEL_MAPPING:
        raise ExtractorError(f"transformers' AutoModel has no network of the type {config.model_type}; name another")
    found = MODEL_MAPPING[type(config)]
    return found[0] if isinstance(found, tuple) else found


def _config_digest(config: Any) -> str:
    origin = ("_name_or_path", "transformers_version")  # where and with what it was loaded
    settings = {name: value for name, value in config.to_dict().items() if name not in origin}
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Hide transformers' progress bars and load reports; their errors are checked and raised here."""
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

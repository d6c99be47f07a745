"""Vision networks by name: transformers' auto classes and ResNets, from weights or from an architecture alone."""

from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torchvision
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoImageProcessor

from vse_core.digests import first_line
from vse_core.encoders.pretrained import architecture_of, build_from_architecture, load_pretrained
from vse_core.encoders.resnet import RESNETS, GridResNet, from_released
from vse_core.tensor_files import TensorFileError, is_state, read_tensor_file

Architecture = str | dict[str, Any]

# What pixels from 0 to 255 are brought to: RGB unless `bgr`, minus `mean`, divided by `std`.
PIXELS: dict[str, dict[str, Any]] = {
    "imagenet": {"bgr": False, "mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]},
    # The detector of bottom-up attention (VSE-infinity's released code); the mean is in the order blue, green, red.
    "caffe": {"bgr": True, "mean": [102.9801, 115.9465, 122.7717], "std": [1.0, 1.0, 1.0]},
}

# Names of classes: the network ends before they matter.
_LABELS = ("id2label", "label2id")
_LOADING_ERRORS = (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError)


def build_network(architecture: Architecture | None, weights: str | None) -> tuple[nn.Module, Architecture]:
    """A vision network that gives its last hidden state for normalised pixels (B, 3, H, W), and what rebuilds it.

    Args:
        architecture: a name in `RESNETS`; without weights a transformers configuration as JSON values.
        weights: None leaves the network as it was initialised. For a ResNet a file of tensors in torchvision's names or
            in those of the released ``{"base", "top"}`` file, or the name of weights that torchvision downloads, such
            as IMAGENET1K_V2; otherwise a folder or hub id.

    Raises:
        ValueError: the architecture is unknown, or the weights cannot be read or do not fit it.
    """
    if isinstance(architecture, str):
        network: nn.Module = GridResNet(architecture)
        if weights is not None:
            state = _torchvision_state(architecture, weights)
            try:
                network.load_state_dict({name: state[name] for name in state if not name.startswith("fc.")})
            except RuntimeError as error:
                raise ValueError(f"backbone weights {weights} do not fit: {error}") from error
        return network, architecture
    if weights is not None and Path(weights).expanduser().is_file():
        raise ValueError(
            f"backbone weights {weights} are a file: name the architecture that they fill, one of {', '.join(RESNETS)}"
        )
    network = load_pretrained(weights) if weights is not None else build_from_architecture(architecture or {})
    rebuilt_by = {key: value for key, value in architecture_of(network).items() if key not in _LABELS}
    return _image_side(network, weights), rebuilt_by


def _image_side(network: Any, weights: str | None) -> nn.Module:
    """Return the vision tower of a dual encoder, or the network itself, whose state is then channels first."""
    vision: nn.Module = getattr(network, "vision_model", network)
    if getattr(vision, "main_input_name", "pixel_values") != "pixel_values":
        raise ValueError(
            f"{weights or 'the architecture'}: {type(network).__name__} reads {vision.main_input_name}, no images; "
            "name a vision network, or a dual encoder such as CLIP"
        )
    if getattr(getattr(vision, "timm_model", None), "output_fmt", None) == "NHWC":
        vision.register_forward_hook(_channels_first)
    return vision


def _channels_first(_network: nn.Module, _inputs: Any, output: Any) -> Any:
    output.last_hidden_state = output.last_hidden_state.permute(0, 3, 1, 2)
    return output


def resolve_pixels(
    pixels: str | Mapping[str, Any] | None, architecture: Architecture, weights: str | None
) -> dict[str, Any]:
    """Return the normalisation of pixels: ``{"bgr": bool, "mean": [3 numbers], "std": [3 numbers]}``, of 0 to 255.

    ``pixels`` is the same, a name in `PIXELS`, or None to take what belongs to the weights; ValueError if these come
    without settings for their images.
    """
    if isinstance(pixels, Mapping):
        return dict(pixels)
    if pixels is not None:
        if pixels not in PIXELS:
            raise ValueError(f"there is no normalisation {pixels!r} of pixels; there are {', '.join(PIXELS)}")
        return PIXELS[pixels]
    if isinstance(architecture, str):
        return PIXELS["caffe" if architecture.endswith("_caffe") else "imagenet"]
    return PIXELS["imagenet"] if weights is None else pixels_of(weights)


def image_processor(weights: str) -> Any:
    """Return the settings that weights come with for their images; ValueError if there are none."""
    folder = Path(weights).expanduser()
    try:
        return AutoImageProcessor.from_pretrained(
            str(folder) if folder.is_dir() else weights,
            local_files_only=folder.is_dir(),
            trust_remote_code=False,
            backend="pil",
        )
    except _LOADING_ERRORS as error:
        raise ValueError(
            f"{weights}: no settings for its images ({first_line(error)}); add preprocessor_config.json or "
            f"processor_config.json, or name the normalisation: {', '.join(PIXELS)}"
        ) from error


def pixels_of(weights: str) -> dict[str, Any]:
    """Return the normalisation of pixels that weights come with, as :func:`resolve_pixels` does."""
    processor = image_processor(weights)
    if hasattr(processor, "data_config"):  # timm's, of pixels from 0 to 1
        mean, std = processor.data_config["mean"], processor.data_config["std"]
        return {"bgr": False, "mean": [255 * value for value in mean], "std": [255 * value for value in std]}
    scale = processor.rescale_factor if processor.do_rescale else 1.0
    mean, std = (processor.image_mean, processor.image_std) if processor.do_normalize else ([0.0] * 3, [1.0] * 3)
    return {"bgr": False, "mean": [value / scale for value in mean], "std": [value / scale for value in std]}


def _torchvision_state(architecture: str, weights: str) -> Mapping[str, Tensor]:
    path = Path(weights).expanduser()
    if not path.is_file():
        return _downloaded(architecture, weights)
    try:
        state: Any = load_file(path) if path.suffix == ".safetensors" else read_tensor_file(path)
    except (TensorFileError, OSError, SafetensorError) as error:
        raise ValueError(f"backbone weights {path}: {first_line(error)}; download it again") from error
    if isinstance(state, dict) and set(state) == {"base", "top"}:
        state = from_released({f"{part}.{name}": tensor for part in state for name, tensor in state[part].items()})
    if not is_state(state):
        raise ValueError(f"backbone weights {path} hold no state dict, nor one of 'base' and one of 'top'")
    return state


def _downloaded(architecture: str, weights: str) -> Mapping[str, Tensor]:
    try:
        known = torchvision.models.get_model_weights(architecture.removesuffix("_caffe"))
        state: Mapping[str, Tensor] = known[weights].get_state_dict(check_hash=True, weights_only=True)
    except (KeyError, ValueError, OSError, UnpicklingError) as error:
        raise ValueError(
            f"backbone weights {weights!r}: there is no such file, and torchvision gives none of that name for "
            f"{architecture} ({first_line(error)})"
        ) from error
    return state

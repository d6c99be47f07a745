"""Pretrained networks through transformers: read from safetensors, or rebuilt from their architecture alone."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModel
from transformers.utils import logging

from vse_core.digests import first_line

# What transformers, huggingface_hub and safetensors raise for weights or settings that cannot be loaded.
_LOADING_ERRORS = (OSError, ValueError, KeyError, TypeError, ImportError, RuntimeError, SafetensorError)
# Where and with what a network was loaded says nothing about it.
_NOT_ARCHITECTURE = ("_name_or_path", "transformers_version")


def load_pretrained(weights: str) -> nn.Module:
    """Load a network in float32 with transformers' auto classes; nothing but safetensors is read, no remote code runs.

    ``weights`` is a local folder with config.json and *.safetensors, or a name on the hub. Raises ValueError if the
    network cannot be loaded, or its weights are incomplete (a pooler may be missing).
    """
    local = Path(weights).expanduser().is_dir()
    name = str(Path(weights).expanduser()) if local else weights
    origin: dict[str, Any] = {"local_files_only": local, "trust_remote_code": False}
    try:
        with quiet_transformers():
            config = AutoConfig.from_pretrained(name, **origin)
            if hasattr(config, "auto_map"):
                raise ValueError("config.json names code of its own, auto_map, which never runs here")
            if getattr(config, "model_args", None):  # timm names the classes, which the network is built without
                config.model_args = {key: value for key, value in config.model_args.items() if key != "num_classes"}
            model, report = AutoModel.from_pretrained(
                name,
                config=config,
                dtype=torch.float32,
                use_safetensors=True,
                output_loading_info=True,
                **origin,
            )
    except _LOADING_ERRORS as error:
        raise ValueError(
            f"the weights {weights!r} cannot be loaded ({type(error).__name__}: {first_line(error)}); name a folder "
            "with config.json and *.safetensors, or a model on the hub if the network reaches it"
        ) from error
    # Poolers come after the last hidden state; many models are published without theirs.
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    misshapen = sorted(str(entry[0]) for entry in report["mismatched_keys"])
    if missing or misshapen:
        raise ValueError(
            f"the weights {weights!r} do not fit their config.json: {len(missing)} parameters are missing "
            f"{missing[:3]} and {len(misshapen)} have another shape {misshapen[:3]}"
        )
    network: nn.Module = model
    return network


def build_from_architecture(architecture: dict[str, Any]) -> nn.Module:
    """Build a network with random weights from what :func:`architecture_of` gave; ValueError if it is not known."""
    try:
        config = AutoConfig.for_model(**architecture)
        network: nn.Module = AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)
    except _LOADING_ERRORS as error:
        raise ValueError(
            f"transformers {transformers.__version__} cannot build a network of the type "
            f"{architecture.get('model_type')!r} from its architecture: {error}"
        ) from error
    return network


def architecture_of(network: Any) -> dict[str, Any]:
    """The configuration of a transformers network as JSON values, which rebuild it without its weights."""
    architecture: dict[str, Any] = json.loads(network.config.to_json_string(use_diff=False))
    return {name: value for name, value in architecture.items() if name not in _NOT_ARCHITECTURE}


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence progress bars and load reports; what matters of them is checked and raised here."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()

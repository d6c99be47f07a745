"""Compiling the networks of a model, where there is a compiler."""

import importlib.util
import os
import shutil

import torch
from torch import nn


class CompilerError(RuntimeError):
    """There is no compiler on this machine: the message names the one that is missing."""


def compile_networks(model: nn.Module, device: torch.device) -> None:
    """Compile BERT and trained backbones in place, when each is first called; names of parameters stay the same.

    They are what there is to fuse: whole networks on full tensors. Around them sets of varying length are packed,
    sorted and pooled, which a compiler would cut into pieces and compile again for each length.

    Raises:
        CompilerError: there is no compiler for the device.
        ValueError: the model has no such network.
    """
    networks = _networks(model)
    if not networks:
        raise ValueError("the model has neither BERT nor a backbone, which are what is compiled")
    _check_compiler(device)
    for network in networks:
        network.compile()


def _networks(model: nn.Module) -> list[nn.Module]:
    # Imported when asked for: transformers and torchvision take seconds.
    from vse_core.encoders.backbone import BackboneEncoder
    from vse_core.encoders.bert import BertEncoder

    backbones = [module.backbone for module in model.modules() if isinstance(module, BackboneEncoder)]
    return backbones + [module.bert for module in model.modules() if isinstance(module, BertEncoder)]


def _check_compiler(device: torch.device) -> None:
    """Look for what PyTorch's inductor calls, which itself would say so in the middle of the first step."""
    variable, default = ("CC", "gcc") if device.type == "cuda" else ("CXX", "g++")
    compiler = os.environ.get(variable, default)
    if shutil.which(compiler) is None:
        raise CompilerError(
            f"torch.compile needs a compiler, and there is no {compiler!r} on this machine: install it, name another "
            f"in the environment variable {variable}, or train without compiling"
        )
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        raise CompilerError("torch.compile needs triton on GPUs: pip install triton, or train without compiling")

"""FSDP2: of the weights, their gradients and the optimiser's state each process keeps a share, and gathers the rest."""

import warnings
from collections.abc import Sequence
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

# What the encoders call their pretrained networks.
_NETWORKS = ("bert", "backbone", "tower")
_OF_RESNET = ("layer1", "layer2", "layer3", "layer4")
# The share of a network's parameters that its list of layers has at least.
_MOST = 0.8


def shard(model: nn.Module) -> None:
    """Leave this process its share of a model whose weights all processes have, before the optimiser is made.

    Where a layer of a pretrained network is needed, all its weights are there, and its gradients leave for their owners
    when it is done; the rest of the model is gathered at once (Zhao et al. 2023, PyTorch FSDP; `fully_shard`). Losses
    and gradients are DistributedDataParallel's, up to the order of sums.

    Parameters are DTensors from here on, which :mod:`vse_core.training.shares` saves and reads.
    """
    for parameter in model.parameters():
        # Convolutions are kept channels last, which fully_shard refuses.
        parameter.data = parameter.data.contiguous()
    for name, network in model.named_modules():
        if name.rpartition(".")[2] in _NETWORKS:
            for layer in _layers(network):
                fully_shard(network.get_submodule(layer))
    fully_shard(model)
    # An image's only vector is returned as a view of it, which nothing writes into.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module", category=UserWarning)
    for method in ("encode_images", "encode_texts"):
        register_fsdp_forward_method(model, method)


def is_sharded(network: nn.Module) -> bool:
    """Return whether processes share a network's weights, and so must call it equally often."""
    return any(isinstance(module, FSDPModule) for module in network.modules())


def forget_gathered(model: nn.Module) -> None:
    """Free the weights of others that the last call of a model without gradients has left, and may soon be old."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor with the shares of all processes, all of which call this; any other as it is."""
    return tensor.full_tensor() if _is_share(tensor) else tensor


def clip_gradients(parameters: Sequence[nn.Parameter], most: float) -> Tensor:
    """Scale gradients to a global L2 norm of at most this; return the norm before, the same on all processes."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    kinds = [[gradient for gradient in gradients if _is_share(gradient) == shared] for shared in (True, False)]
    norms = [whole(nn.utils.get_total_norm(kind)) for kind in kinds if kind]
    norm = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms or [torch.zeros(())]))
    nn.utils.clip_grads_with_norm_(parameters, most, norm)
    return norm


def _is_share(tensor: Tensor) -> TypeGuard[DTensor]:
    return isinstance(tensor, DTensor)


def _layers(network: nn.Module) -> list[str]:
    """Return the names of a network's layers or stages, first to last; ValueError if it has no list of them.

    They are a ResNet's layer1 to layer4, otherwise the entries of its largest list of modules, or, of networks without
    such lists (timm's), the children of the innermost module that nearly all parameters are in.
    """
    modules = dict(network.named_modules())
    for name, module in modules.items():
        if all(hasattr(module, layer) for layer in _OF_RESNET):
            return [f"{name}.{layer}".lstrip(".") for layer in _OF_RESNET]
    # A list inside a numbered part is one of its branches, none of layers.
    outer = {name: module for name, module in modules.items() if not any(part.isdigit() for part in name.split("."))}
    lists = {name: module for name, module in outer.items() if isinstance(module, nn.ModuleList)}
    if lists:
        largest = max(lists, key=lambda name: _size(lists[name]))
        return [f"{largest}.{i}" for i in range(len(lists[largest]))]
    name, children = "", dict(network.named_children())
    while (most := max(children, key=lambda child: _size(children[child]), default=None)) is not None:
        if _size(children[most]) < _MOST * _size(network):
            return [f"{name}{child}" for child in children if _size(children[child])]
        name, children = f"{name}{most}.", dict(children[most].named_children())
    raise ValueError(f"{type(network).__name__} has no list of stages or layers to be told apart")


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())

"""The layers or stages of a network, whatever library it comes from."""

from torch import nn

# The share of a network's parameters that its list of layers has at least.
_MOST = 0.8


def layers_of(network: nn.Module) -> list[str]:
    """Return the names of a network's layers or stages, first to last; ValueError where it has no list of them.

    They are the entries of its largest list of modules, or, of networks without such lists (timm's), the children of
    the innermost module that nearly all parameters are in.
    """
    lists = {name: module for name, module in network.named_modules() if isinstance(module, nn.ModuleList)}
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

"""The layers or stages of a network, whatever library it comes from."""

from torch import nn

_OF_RESNET = ("layer1", "layer2", "layer3", "layer4")
# The share of a network's parameters that its list of layers has at least.
_MOST = 0.8


def layers_of(network: nn.Module) -> list[str]:
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

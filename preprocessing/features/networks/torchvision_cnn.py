"""CNNs of torchvision by name, and the ResNets of Caffe, filled from the files that were published for them."""

from collections import OrderedDict
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.models import get_model, list_models

from preprocessing.features.extractor import ExtractorError
from preprocessing.features.networks.network import CAFFE, IMAGENET, Network, NetworkOptions
from preprocessing.features.weights import fill, is_state, read_weights, weights_digest

_SUFFIX = "_caffe"
CAFFE_RESNETS = ("resnet50_caffe", "resnet101_caffe", "resnet152_caffe")

# Networks that are a sequence of modules up to their last feature map, and the first module after it.
_FAMILIES = (
    models.AlexNet,
    models.ConvNeXt,
    models.EfficientNet,
    models.MobileNetV2,
    models.MobileNetV3,
    models.RegNet,
    models.ResNet,
    models.VGG,
)
_AFTER = ("avgpool", "classifier")

# Modules of VSE-infinity's original_updown_backbone.pth, {"base": ..., "top": ...}, in torchvision's names.
_UPDOWN_MODULES = {
    "base.0": "conv1",
    "base.1": "bn1",
    "base.4": "layer1",
    "base.5": "layer2",
    "base.6": "layer3",
    "top.0": "layer4",
}


def load_torchvision(network: str, options: NetworkOptions) -> Network:
    """A CNN whose state is its last feature map; errors as of `build_cnn`.

    A name that ends in `_caffe` is the topology in which bottom-up attention's detector and the released VSE-infinity
    grids were trained: in the first block of a layer the stride sits on the 1x1 convolution, and the max pooling has no
    padding and rounds its size up. Such a network sees pixels blue first, minus Caffe's means; all others see them red
    first with ImageNet's mean and deviation.

    `weights` is a state dict in torchvision's names or VSE-infinity's original_updown_backbone.pth, as safetensors or a
    PyTorch file that holds tensors only; a folder stands for the model.safetensors in it. `image_size` must be given.
    """
    weights, seed = options.weights, options.seed
    if options.image_size is None:
        raise ExtractorError(f"network {network!r} has no preprocessing of its own: give image_size (224, 512, ...)")
    trunk, head = _build(network, 0 if seed is None else seed)
    if weights is None and seed is None:
        raise ExtractorError(
            f"network {network!r} needs 'weights', a file with its state dict (those of torchvision and of WSL are at "
            "https://download.pytorch.org/models/, the Caffe ResNet-101 is VSE-infinity's original_updown_backbone.pth)"
            ", or a seed for a randomly initialised network"
        )
    if weights is not None and seed is not None:
        raise ExtractorError(f"weights {weights} and a seed were given; leave out the seed to use the weights")
    if weights is not None:
        state = read_state(Path(weights).expanduser())
        given = {name: tensor for name, tensor in state.items() if name.split(".")[0] not in head}
        fill(trunk, given, weights, "name the one of their training")
    normalization = CAFFE if network.endswith(_SUFFIX) else IMAGENET
    digest = weights_digest(trunk.state_dict())
    identity = {"network": network, "weights_sha256": digest, "pixels": asdict(normalization)}
    name = weights or f"{network} of seed {seed}"
    pixels = partial(normalization.pixels, image_size=options.image_size)
    return Network(options, name, trunk, trunk, pixels, identity)


def _build(name: str, seed: int) -> tuple[nn.Sequential, set[str]]:
    """The network up to its last feature map, filled from the seed, and the names of its modules after that."""
    base = name.removesuffix(_SUFFIX)
    known = name in CAFFE_RESNETS if name.endswith(_SUFFIX) else base in list_models(module=models)
    if not known:
        raise ExtractorError(
            f"torchvision has no network {name!r}; it has resnet50, resnet101, resnext101_32x8d, vgg19, "
            f"efficientnet_b0, convnext_base and more, and there are {', '.join(CAFFE_RESNETS)}"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = get_model(base, weights=None)
    if not isinstance(model, _FAMILIES):
        families = ", ".join(family.__name__ for family in _FAMILIES)
        raise ExtractorError(f"{name!r} is not of a family whose last feature map can be had ({families})")
    if name.endswith(_SUFFIX):
        model.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=0, ceil_mode=True)
        for layer in (model.layer2, model.layer3, model.layer4):
            layer[0].conv1.stride, layer[0].conv2.stride = layer[0].conv2.stride, layer[0].conv1.stride
    children = list(model.named_children())
    end = next(number for number, (child, _) in enumerate(children) if child in _AFTER)
    return nn.Sequential(OrderedDict(children[:end])), {child for child, _ in children[end:]}


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, or of the model.safetensors of a folder, by torchvision's names; raises ExtractorError."""
    path = path / "model.safetensors" if path.is_dir() else path
    if not path.is_file():
        raise ExtractorError(f"weights: there is no file {path.absolute()}")
    state = read_weights(path)
    if isinstance(state, dict) and set(state) == {"base", "top"} and all(isinstance(s, dict) for s in state.values()):
        state = {f"{part}.{name}": tensor for part in state for name, tensor in state[part].items()}
    if not is_state(state):
        raise ExtractorError(f"weights {path} hold no state dict, nor one of 'base' and one of 'top'")
    return {_torchvision_name(name): tensor for name, tensor in state.items()}


def _torchvision_name(name: str) -> str:
    name = name.removeprefix("module.")  # of nn.DataParallel
    module = ".".join(name.split(".")[:2])
    return _UPDOWN_MODULES.get(module, module) + name.removeprefix(module)

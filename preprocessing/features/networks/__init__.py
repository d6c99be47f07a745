"""Vision networks ready to run on images: those of transformers by folder or hub id, those of torchvision by name."""

from typing import Any

from preprocessing.features.extractor import ExtractorError
from preprocessing.features.networks.network import Network, NetworkOptions, PixelsCHW
from preprocessing.features.networks.torchvision_cnn import load_torchvision, read_state
from preprocessing.features.networks.transformer_models import load_transformers

__all__ = ["Network", "NetworkOptions", "PixelsCHW", "build_cnn", "load_transformers", "read_state"]


def build_cnn(**settings: Any) -> Network:
    """Build a network of either library from the fields of :class:`NetworkOptions`; its state is a map (F, h, w).

    ExtractorError: what is asked for does not exist, cannot be loaded, does not fit together, or is not a CNN.
    """
    options = NetworkOptions(**settings)
    network = load_transformers(options) if options.network is None else load_torchvision(options.network, options)
    shape = tuple(network.example_state().shape)
    if len(shape) == 2:
        raise ExtractorError(f"{network.weights} is a transformer and has no cells; use the extractor 'patches'")
    if len(shape) != 3:
        raise ExtractorError(f"{network.weights}: a state of shape {shape}, where (F, h, w) is needed; name a CNN")
    return network

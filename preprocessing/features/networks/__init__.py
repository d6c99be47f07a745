"""Vision networks ready to run on images: those of transformers by folder or hub id, those of torchvision by name."""

from typing import TypedDict, Unpack

from preprocessing.features.extractor import ExtractorError
from preprocessing.features.networks.network import Network, PixelsCHW
from preprocessing.features.networks.pixels import ImageSize
from preprocessing.features.networks.torchvision_cnn import load_torchvision, rewrite_state
from preprocessing.features.networks.transformer_models import load_transformers

__all__ = [
    "Network",
    "NetworkOptions",
    "PixelsCHW",
    "build_cnn",
    "build_network",
    "load_transformers",
    "rewrite_state",
]


class NetworkOptions(TypedDict, total=False):
    """Arguments of :func:`build_network`."""

    weights: str | None
    network: str | None
    image_size: ImageSize | None
    device: str
    seed: int | None
    dtype: str


def build_network(
    weights: str | None = None,
    network: str | None = None,
    image_size: ImageSize | None = None,
    device: str = "cpu",
    seed: int | None = None,
    dtype: str = "float32",
) -> Network:
    """A network of either library.

    Args:
        weights: of transformers a folder or hub id, see :func:`load_transformers`; of torchvision a file, see
            :func:`load_torchvision`.
        network: a CNN of torchvision by name, "resnext101_32x8d", or "resnet101_caffe", bottom-up attention's; None
            means transformers.
        image_size: side of the square that the whole image becomes, or "short_600": the short side becomes 600 pixels
            and the long one at most 1000. None leaves it to the settings that come with the weights.
        device: where it runs, as torch names it.
        seed: initialises the network from this number instead of loading trained weights.
        dtype: what it computes in: "float32", "bfloat16" or "float16".

    ExtractorError: what is asked for does not exist, cannot be loaded or does not fit together.
    """
    if network is None:
        return load_transformers(weights, image_size, device, seed, dtype)
    return load_torchvision(network, weights, image_size, device, seed, dtype)


def build_cnn(**options: Unpack[NetworkOptions]) -> Network:
    """Build a network as :func:`build_network` does; ExtractorError unless its state is a feature map (F, h, w)."""
    network = build_network(**options)
    shape = tuple(network.example_state().shape)
    if len(shape) == 2:
        raise ExtractorError(
            f"{network.weights} is a transformer, which has no grid of cells; use the extractor 'patches'"
        )
    if len(shape) != 3:
        raise ExtractorError(f"{network.weights}: a state of shape {shape}, where (F, h, w) is needed; name a CNN")
    return network

"""Learning rates that fall from a pretrained network's last layer to its first."""

from collections.abc import Mapping

from torch import nn

from vse_core.encoders.layers import layers_of


def layer_rates(model: nn.Module, rate_factors: Mapping[str, float], decay: float) -> dict[str, float]:
    """Return the factors of the base rate for each layer of networks in a model (Clark et al. 2020, ELECTRA, table 6).

    A network's last of L layers has ``decay`` times the network's factor, the one before it ``decay**2``, and what
    precedes the first ``decay**(L + 1)``; what follows the last has the network's. Layers without trainable parameters
    are left out. Raises ValueError where a network has no list of layers.

    Args:
        model: the model.
        rate_factors: the networks as submodules of it -> their factors, as of
            :func:`~vse_core.training.optim.build_optimizer`.
        decay: of a layer to the one before it.
    """
    rates: dict[str, float] = {}
    for prefix, factor in rate_factors.items():
        network = model.get_submodule(prefix)
        layers = [f"{layer}." for layer in layers_of(network)]
        depth = 0
        for name, parameter in network.named_parameters():
            inside = next((number for number, layer in enumerate(layers, start=1) if name.startswith(layer)), None)
            depth = max(depth, inside or 0)
            part = name.rpartition(".")[0] if inside is None else layers[inside - 1].removesuffix(".")
            exponent = len(layers) + 1 - inside if inside else len(layers) + 1 if depth == 0 else 0
            if parameter.requires_grad:
                rates[f"{prefix}.{part}"] = factor * decay**exponent
    return rates

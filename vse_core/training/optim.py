"""The optimiser of the published recipes."""

import torch
from torch import nn


def build_optimizer(model: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW over all trainable parameters with PyTorch's default betas, as in every released VSE-infinity recipe.

    Args:
        model: the model.
        learning_rate: base rate, for the global batch; the schedule multiplies it.
        weight_decay: decoupled weight decay (0.01 for region features with a BiGRU, 1e-4 with BERT).
    """
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(trainable, lr=learning_rate, weight_decay=weight_decay)

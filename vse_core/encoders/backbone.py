"""Image encoder trained end to end: pixels become a set of cells of a CNN or a ViT, and these the embeddings."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from vse_core.digests import first_line
from vse_core.encoders.image import FeatureEncoder
from vse_core.encoders.networks import Architecture
from vse_core.encoders.resnet import GridResNet
from vse_core.static_shapes import has_static_shapes

# oneDNN's AVX2 kernel for 1x1 convolutions is safe from this number of input channels on.
_SAFE_CHANNELS = 8
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class BackboneEncoder(nn.Module):
    """The cells of a CNN, or the patches of a ViT, projected, pooled and scaled to unit length (VSE-infinity's grids).

    Batch norm keeps its running statistics, in training as well; its weights and biases train. Parameters that no cell
    depends on (a ViT's pooler, a mask token) never train, so that every parameter that does gets a gradient in every
    step, as DistributedDataParallel demands.

    State-dict names: `backbone.*` are those of torchvision (see :class:`GridResNet`) or of transformers; `head.*` those
    of :class:`FeatureEncoder`. A network whose state of an image is random in evaluation is a ValueError.

    Args:
        network: gives its last hidden state, (B, F, h, w) or (B, N, F) with class tokens first, for normalised pixels.
        architecture: rebuilds it without weights (:func:`vse_core.encoders.networks.build_network`).
        embed_dim: D, width of the joint space.
        pooling: aggregator of the cells, and of class and register tokens.
        image_size: S, height and width of the pixels.
        pixels: as :func:`vse_core.encoders.networks.resolve_pixels` returns it.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: nn.Module,
        architecture: Architecture,
        embed_dim: int,
        pooling: nn.Module,
        image_size: int,
        pixels: Mapping[str, Any],
    ) -> None:
        super().__init__()
        self.cells, self.class_tokens, width, self._used = _probe(network, image_size)
        _require_repeatable(network, image_size)
        self.image_size = image_size
        self.rebuilt_by = {"architecture": architecture, "pixels": dict(pixels)}
        self._bgr = bool(pixels["bgr"])
        self.register_buffer("mean", torch.tensor(pixels["mean"]).reshape(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(pixels["std"]).reshape(3, 1, 1), persistent=False)
        # The layout in which convolutions are fastest, on CPUs as on GPUs.
        self.backbone = _avoiding_overflow(network.to(memory_format=torch.channels_last))
        self.head = FeatureEncoder(width, embed_dim, pooling, mlp=False)
        self.freeze(False)
        self.train()

    @property
    def pooling(self) -> nn.Module:
        """The aggregator."""
        return self.head.pooling

    def freeze(self, frozen: bool) -> None:
        """Keep the network as it is, or train it.

        Wrap the model in DistributedDataParallel again afterwards: it remembers which parameters get gradients.
        """
        for name, parameter in self.backbone.named_parameters():
            parameter.requires_grad_(name in self._used and not frozen)

    def train(self, mode: bool = True) -> "BackboneEncoder":
        """Set the mode of all but the network's batch norms."""
        super().train(mode)
        for module in self.backbone.modules():
            if isinstance(module, _BATCH_NORMS):
                module.eval()
        return self

    def forward(self, pixels_BCHW: Tensor, kept_BN: Tensor) -> Tensor:
        """Encode pixels (B, 3, S, S), red first, from 0 to 255, into (B, K, D) vectors of unit length.

        ``kept_BN`` says which cells belong to the set; size augmentation leaves some out. Class tokens always belong to
        it. Other shapes, and an image that keeps no cell, are a ValueError.
        """
        side, batch = self.image_size, pixels_BCHW.shape[0]
        if pixels_BCHW.shape[1:] != (3, side, side) or kept_BN.shape != (batch, self.cells):
            raise ValueError(
                f"this backbone takes pixels (B, 3, {side}, {side}) and kept cells (B, {self.cells}), got "
                f"{tuple(pixels_BCHW.shape)} and {tuple(kept_BN.shape)}"
            )
        pixels_BCHW = ((pixels_BCHW.flip(1) if self._bgr else pixels_BCHW) - self.mean) / self.std
        cells_BNF = _as_set(self.backbone(pixels_BCHW.contiguous(memory_format=torch.channels_last)))
        always_BN = kept_BN.new_ones(batch, self.class_tokens)
        return self.head(*_compacted(cells_BNF, torch.cat([always_BN, kept_BN], dim=1)))  # type: ignore[no-any-return]


def _probe(network: nn.Module, image_size: int) -> tuple[int, int, int, frozenset[str]]:
    """Return the cells and class tokens that a network makes of an image, their width, and the parameters they need.

    It runs on the meta device, which knows shapes and gradients and does no arithmetic.
    """
    network.eval()
    # A model may be loaded inside inference_mode, which knows no gradients.
    with torch.inference_mode(False), torch.enable_grad():
        shapes = {name: parameter.shape for name, parameter in network.named_parameters()}
        parameters = {name: torch.empty(shape, device="meta", requires_grad=True) for name, shape in shapes.items()}
        buffers = {name: torch.empty_like(buffer, device="meta") for name, buffer in network.named_buffers()}
        pixels = torch.empty(1, 3, image_size, image_size, device="meta")
        try:
            state = _state(functional_call(network, {**parameters, **buffers}, (pixels,)))
        except (TypeError, ValueError, RuntimeError, AttributeError, LookupError) as error:
            raise ValueError(
                f"{type(network).__name__} gives no last hidden state for {image_size} x {image_size} pixels: "
                f"{first_line(error)}"
            ) from error
        gradients = torch.autograd.grad(state.sum(), list(parameters.values()), allow_unused=True)
    used = frozenset(name for name, gradient in zip(parameters, gradients, strict=True) if gradient is not None)
    tokens_NF = _as_set(state)[0]
    # Patches fill a square; what is over are class and register tokens.
    cells = len(tokens_NF) if state.ndim == 4 else math.isqrt(len(tokens_NF)) ** 2
    return cells, len(tokens_NF) - cells, tokens_NF.shape[1], used


def _avoiding_overflow(network: nn.Module) -> nn.Module:
    """Compute narrow 1x1 convolutions with a stride in the contiguous layout.

    In channels_last oneDNN writes beyond the gradient of their weights (float32 on CPUs with AVX2; docs/failures.md).
    """
    for module in network.modules():
        if (
            isinstance(module, nn.Conv2d)
            and module.kernel_size == (1, 1)
            and max(module.stride) > 1
            and module.in_channels < _SAFE_CHANNELS
        ):
            # Copied: of a 1x1 kernel `contiguous` keeps the strides, by which PyTorch tells the layout.
            module.weight.data = torch.empty(module.weight.shape, device=module.weight.device).copy_(module.weight)
            module.register_forward_pre_hook(lambda _module, inputs: inputs[0].contiguous())
    return network


def _require_repeatable(network: nn.Module, image_size: int) -> None:
    """Raise ValueError if two passes over one image differ, as of ViTMAE, which keeps patches at random."""
    if isinstance(network, GridResNet):
        return
    pixels = torch.rand(1, 3, image_size, image_size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        state, again = (_state(network(pixels)) for _ in range(2))
    if not torch.allclose(state, again, rtol=1e-3, atol=1e-3 * float(state.abs().max())):
        raise ValueError(f"{type(network).__name__}: two passes over one image give different features; name another")


def _state(output: Any) -> Tensor:
    """Return a network's last hidden state: its output, or that of AutoModel's output."""
    state: Tensor = output if isinstance(output, Tensor) else output.last_hidden_state
    if state.ndim not in (3, 4):
        raise ValueError(f"the state has the shape {tuple(state.shape)}, where (B, F, h, w) or (B, N, F) is needed")
    return state


def _as_set(output: Any) -> Tensor:
    state = _state(output)
    return state.flatten(2).transpose(1, 2) if state.ndim == 4 else state


def _compacted(cells_BNF: Tensor, kept_BN: Tensor) -> tuple[Tensor, Tensor]:
    """The kept cells of each image at its front, in their order, and how many they are; the rest is padding."""
    lengths_B = kept_BN.sum(dim=1)
    if torch.onnx.is_in_onnx_export():  # an exported graph is for inference, which keeps all cells
        return cells_BNF, lengths_B
    longest = cells_BNF.shape[1] if has_static_shapes(kept_BN) else int(lengths_B.max())
    order_BN = torch.argsort(~kept_BN, dim=1, stable=True)[:, :longest]
    return cells_BNF.gather(1, order_BN.unsqueeze(-1).expand(-1, -1, cells_BNF.shape[-1])), lengths_B

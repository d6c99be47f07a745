"""Chunked encoding against the batch encoded at once, and where there is dropout against chunks with all activations.

That it is the same on several processes, for every kind of model, is in test_processes.py.
"""

import pytest
import torch
from torch import nn

from tests.vse_core.training.tiny_views import LOSSES, TinyViews, random_batch
from vse_core.losses import build_loss
from vse_core.models import build_model
from vse_core.training.grad_cache import ChunkedModel
from vse_core.training.mixed_precision import MixedPrecision
from vse_core.training.step import LocalBatch, training_step

SIZE = 10
BERT = {
    "model_type": "bert",
    "vocab_size": 13,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.3,
    "attention_probs_dropout_prob": 0.3,
}


def gradients(model: nn.Module, name: str = "infonce", precision: MixedPrecision | None = None) -> list[torch.Tensor]:
    """Of one step, from the same random state."""
    inputs, ids = random_batch(SIZE, seed=1)
    inputs[0] = inputs[0].to(next(model.parameters()).dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    torch.manual_seed(7)
    local_batch = LocalBatch(inputs, ids, [SIZE])
    training_step(model, build_loss(**LOSSES[name]), optimizer, [local_batch], 1e9, precision).check()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("chunk_size", [1, 3, SIZE, 100])
@pytest.mark.parametrize("norm_rows", ["real", "padded"])
def test_any_size_of_chunks(chunk_size: int, norm_rows: str):
    model = TinyViews(views=2).double()
    model.towers.image_encoder.norm_rows = norm_rows
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    expected, statistics = gradients(model), model.state_dict()
    expected_state = {name: tensor.clone() for name, tensor in statistics.items()}
    model.load_state_dict(start)
    torch.testing.assert_close(gradients(ChunkedModel(model, chunk_size)), expected, atol=1e-12, rtol=1e-9)
    torch.testing.assert_close(dict(model.state_dict()), expected_state, atol=1e-12, rtol=1e-9)
    assert not torch.equal(
        start["towers.image_encoder.mlp.norm.running_mean"],
        expected_state["towers.image_encoder.mlp.norm.running_mean"],
    )


def with_dropout() -> nn.Module:
    torch.manual_seed(0)
    text = {"name": "bert", "architecture": BERT, "pooling": {"name": "gpo"}}
    model = build_model(5, 13, 8, {"pooling": {"name": "gpo"}, "mlp": False}, text)
    model.image_encoder = Dropping(model.image_encoder)
    return model.double()


class Dropping(nn.Module):
    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, features, lengths):
        return self.encoder(nn.functional.dropout(features, 0.4, self.training), lengths)


class AllActivations(nn.Module):
    """Chunk by chunk, without encoding anything twice."""

    def __init__(self, model: nn.Module, size: int) -> None:
        super().__init__()
        self.model, self.size = model, size

    def forward(self, *inputs):
        parts = []
        for first in range(0, SIZE, self.size):
            torch.clear_autocast_cache()  # each chunk's gradients are rounded by themselves
            parts.append(self.model(*(x[first : first + self.size] for x in inputs)))
        return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def test_dropout_is_the_same_both_times():
    model = with_dropout()
    expected = gradients(AllActivations(model, 3))
    assert not torch.equal(expected[0], gradients(AllActivations(model, 4))[0])
    torch.testing.assert_close(gradients(ChunkedModel(model, 3)), expected, atol=1e-12, rtol=1e-9)


def test_random_numbers_go_on_after_a_step_as_if_nothing_had_been_encoded_twice():
    model = with_dropout()
    gradients(AllActivations(model, 3))
    expected = torch.rand(3)
    gradients(ChunkedModel(model, 3))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_both_times_in_the_same_precision(name: str):
    model, precision = with_dropout().float(), MixedPrecision(name)
    if name == "fp16":
        precision.scaler.load_state_dict(
            precision.scaler.state_dict() | {"scale": 64.0}
        )  # the first one makes gradients overflow
    expected = gradients(AllActivations(model, 3), precision=precision)
    found = gradients(ChunkedModel(model, 3), precision=precision)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    assert (torch.cat([g.flatten() for g in found]) - torch.cat([g.flatten() for g in gradients(model)])).norm() > 1e-3


def test_encoding_keeps_next_to_nothing_for_the_backward_pass():
    model, (inputs, _) = TinyViews(views=2), random_batch(SIZE, seed=1)

    def kept(encode: nn.Module) -> int:
        sizes: list[int] = []

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            encode(*inputs)
        return sum(sizes)

    assert 0 < kept(ChunkedModel(model, 2)) < kept(model) / 10

"""Static shapes, which a GPU computes with, give what the others give, ask the host for nothing, and few operators."""

import copy
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.vse_core.pooling.test_pooling import make_pooling, make_sets
from tests.vse_core.training.test_processes import SIZE, SYSTEMS, batch_of
from tests.vse_core.training.tiny_levels import tiny_levels
from tests.vse_core.training.tiny_unified import tiny_adversarial, tiny_unified
from tests.vse_core.training.tiny_views import TinyViews
from vse_core import products, static_shapes
from vse_core.encoders.image import FeatureEncoder
from vse_core.losses import build_loss
from vse_core.models import build_model
from vse_core.pooling import POOLINGS, build_pooling
from vse_core.pooling.masks import reads_padding
from vse_core.training.optim import build_optimizer
from vse_core.training.step import LocalBatch, training_step

MODELS = {"unified": tiny_unified, "vse_c": tiny_adversarial, "hierarchical": tiny_levels}
# More columns than the longest caption and set, as batches of few shapes have them.
SPARE = 3


def model_of(name: str) -> nn.Module:
    return MODELS.get(name.split("-")[0], lambda: TinyViews(views=2))()


def assert_equal(found: Any, expected: Any) -> None:
    for ours, exact in zip(found, expected, strict=True):
        assert (ours is None) == (exact is None)
        if exact is not None:
            torch.testing.assert_close(ours, exact, rtol=1e-12, atol=1e-12)


def pooled_and_gradients(module: nn.Module, features: Tensor, lengths: Tensor) -> list[Tensor | None]:
    features = features.clone().requires_grad_()
    output = module(features, lengths)
    probe = torch.randn(output.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    sought = [features, *module.parameters()]
    gradients = torch.autograd.grad((output * probe).sum(), sought, allow_unused=True)
    return [output.detach(), *gradients]


@pytest.mark.parametrize("name", POOLINGS)
def test_aggregators(name: str):
    module = make_pooling(name).double()
    features, lengths = make_sets([5, 2, 9, 9, 1])
    expected = pooled_and_gradients(module, features.double(), lengths)
    padded = nn.functional.pad(features.double(), (0, 0, 0, SPARE), value=7.0)
    with patch.object(static_shapes, "EVERYWHERE", True):
        output, by_features, *rest = pooled_and_gradients(module, padded, lengths)
    assert by_features is not None
    assert not by_features[:, features.shape[1] :].any()
    assert_equal([output, by_features[:, : features.shape[1]], *rest], expected)


@pytest.mark.parametrize("norm_rows", ["real", "padded"])
def test_batch_norm_counts_the_same_rows(norm_rows: Any):
    torch.manual_seed(0)
    encoder = FeatureEncoder(5, 8, build_pooling("gpo", 8), norm_rows=norm_rows, center=True).double()
    encoder.center.mean_F.copy_(torch.randn(5))
    features, lengths = make_sets([5, 2, 9, 9, 1], dim=5)
    features = features.double() * (torch.arange(9) < lengths.unsqueeze(1)).unsqueeze(2)
    other = copy.deepcopy(encoder)
    encoder(features, lengths).square().mul(torch.arange(8)).sum().backward()
    with patch.object(static_shapes, "EVERYWHERE", True):
        other(features, lengths).square().mul(torch.arange(8)).sum().backward()
    assert_equal([p.grad for p in other.parameters()], [p.grad for p in encoder.parameters()])
    assert_equal(other.state_dict().values(), encoder.state_dict().values())


GPO, RELEASE = {"name": "gpo"}, {"name": "adpool", "variant": "release"}
# Images, texts, and whether padding changes their vectors.
TOWERS = {
    "VSE-infinity": ({"pooling": GPO}, {"pooling": GPO}, False),
    "VSE+2AD": ({"pooling": {"name": "adpool"}}, {"pooling": {"name": "adpool"}}, False),
    "released images": ({"pooling": RELEASE}, {"pooling": GPO}, True),
    "released views": ({"pooling": RELEASE, "views": 2}, {"pooling": GPO}, True),
    "released texts": ({"pooling": GPO}, {"pooling": RELEASE}, True),
    "released, without the token level": ({"pooling": RELEASE | {"token_share": 0.0}}, {"pooling": GPO}, False),
    "batch norm of padded rows": ({"pooling": GPO, "norm_rows": "padded"}, {"pooling": GPO}, True),
}


@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize("name", TOWERS)
def test_models_say_whether_they_read_padding(name: str, is_static: bool):
    torch.manual_seed(0)
    image, text, expected = TOWERS[name]
    model = build_model(5, 13, 8, image=image, text=text | {"word_dim": 6})
    inputs, _ = batch_of("triplet", 1)
    inputs[0] *= (torch.arange(inputs[0].shape[1]) < inputs[1].unsqueeze(1)).unsqueeze(2)
    with patch.object(static_shapes, "EVERYWHERE", is_static):
        plain, padded = model(*inputs), model(*with_spare(inputs))
    is_same = all(torch.allclose(one, other, atol=1e-5) for one, other in zip(plain, padded, strict=True))
    assert (not is_same, reads_padding(model)) == (expected, expected)


@pytest.mark.parametrize("name", SYSTEMS)
def test_steps_of_every_system(name: str):
    found = []
    for is_static in (False, True):
        model, loss = model_of(name).double(), build_loss(**SYSTEMS[name]).double()
        inputs, ids = batch_of(name, 1)
        inputs[0] = inputs[0].double()
        batch = LocalBatch(with_spare(inputs) if is_static and len(inputs) < 5 else inputs, ids, [SIZE])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with patch.object(static_shapes, "EVERYWHERE", is_static):
            result = training_step(model, loss, optimizer, [batch], 1e9)
        gradients = [parameter.grad for parameter in (*model.parameters(), *loss.parameters())]
        found.append([result.loss, *(result.parts[part] for part in sorted(result.parts)), *gradients])
        found[-1] += list(model.state_dict().values())
    assert_equal(found[1], found[0])


def with_spare(inputs: list[Any]) -> list[Any]:
    features, lengths, tokens, token_lengths = inputs
    return [
        nn.functional.pad(features, (0, 0, 0, SPARE)),
        lengths,
        nn.functional.pad(tokens, (0, SPARE)),
        token_lengths,
    ]


class Operators(TorchDispatchMode):
    """Counts the operators that start work on a device; views, bookkeeping and calls of GRUs are left out."""

    _NONE = ("promote_types", "empty", "_unsafe_view", "profiler", "prim.device")

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not (func.is_view or any(part in str(func) for part in self._NONE)):
            self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


class OneGRU(torch.autograd.Function):
    """A GRU of the right shapes as one call, as cuDNN has it; on a CPU PyTorch's has an operator for each step."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, start: Tensor, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, *weights)
        return inputs.new_empty(*inputs.shape[:2], start.shape[-1])

    @staticmethod
    def backward(ctx: Any, *_grads: Tensor) -> tuple[Tensor | None, ...]:
        inputs, *weights = ctx.saved_tensors
        return torch.empty_like(inputs), None, *map(torch.empty_like, weights)


@contextmanager
def operators_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(products, "_is_for_onednn", lambda _values: False)
        patch.setattr(torch, "gru", lambda inputs, start, weights, *_: (OneGRU.apply(inputs, start, *weights), None))
        yield


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_host_asks_for_no_value(name: str):
    """A tensor that is fake has none: asking is an error."""
    inputs, ids = batch_of(name, 1)
    with FakeTensorMode() as mode, patch.object(static_shapes, "EVERYWHERE", True):
        model, loss = model_of(name), build_loss(**SYSTEMS[name])
        optimizer = build_optimizer(model, 5e-3, 0.01, of_loss=list(loss.parameters()))
        batch = LocalBatch(faked(inputs, mode), mode.from_tensor(ids), [SIZE])
        training_step(model, loss, optimizer, [batch], 2.0)


def faked(value: Any, mode: FakeTensorMode) -> Any:
    if isinstance(value, Tensor):
        return mode.from_tensor(value)
    if isinstance(value, list):
        return [faked(each, mode) for each in value]
    if is_dataclass(value):
        return replace(value, **{field.name: faked(getattr(value, field.name), mode) for field in fields(value)})
    return value


def test_asking_for_a_value_is_an_error():
    with FakeTensorMode(), pytest.raises(Exception, match="_local_scalar_dense"):
        int(torch.ones(3).sum())


# Of a step that is not logged.
MOST = {"triplet": 249, "sigmoid-learned": 257}


@pytest.mark.parametrize("name", MOST)
def test_operators_of_a_step_of_vse_infinity(name: str, monkeypatch: pytest.MonkeyPatch):
    gpo = {"pooling": {"name": "gpo"}}
    model, loss = build_model(16, 30, 8, image=gpo, text=gpo), build_loss(**SYSTEMS[name])
    inputs = [
        torch.rand(4, 6, 16),
        torch.tensor([6, 3, 5, 6]),
        torch.randint(0, 30, (4, 8)),
        torch.tensor([8, 2, 5, 4]),
    ]
    with operators_of_a_gpu(monkeypatch), patch.object(static_shapes, "EVERYWHERE", True):
        optimizer = build_optimizer(model, 5e-3, 0.01, of_loss=list(loss.parameters()))
        batch = LocalBatch(inputs, torch.arange(4), [4])
        training_step(model, loss, optimizer, [batch], 2.0, diagnosed=False)
        with Operators() as operators:
            training_step(model, loss, optimizer, [batch], 2.0, diagnosed=False)
    assert operators.counts.total() <= MOST[name], operators.counts.most_common()

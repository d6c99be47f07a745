"""Half precision near float32; steps that overflow are left out, a loss that is no number is an error."""

import json
from pathlib import Path

import pytest
import torch

from tests.vse_core.training.tiny_unified import adversarial_batch, tiny_adversarial, tiny_unified, unified_batch
from tests.vse_core.training.tiny_views import LOSSES, TinyViews, random_batch
from vse_core.losses import build_loss
from vse_core.precision import full_precision, use_tf32
from vse_core.training.mixed_precision import MixedPrecision
from vse_core.training.optim import build_optimizer
from vse_core.training.state import Progress, load_state, optimizer_tensors, save_state
from vse_core.training.step import LocalBatch, NonFiniteLossError, check_finite, training_step

SIZE = 12
SYSTEMS = {
    "multi_view-joint-all": (lambda: TinyViews(views=2), random_batch, LOSSES["multi_view-joint-all"]),
    "infonce": (lambda: TinyViews(views=2), random_batch, LOSSES["infonce"]),
    "unified": (tiny_unified, unified_batch, {"name": "unified"}),
    "vse_c": (tiny_adversarial, adversarial_batch, {"name": "vse_c", "negatives": "all"}),
}


class Run:
    """A model in training, one batch a step."""

    def __init__(self, system: str, precision: str, scale: float | None = None) -> None:
        make_model, self.make_batch, options = SYSTEMS[system]
        self.model, self.loss = make_model(), build_loss(**options)
        self.optimizer = build_optimizer(self.model, 5e-3, 0.01)
        self.precision = MixedPrecision(precision)
        if scale is not None:
            self.precision.scaler.load_state_dict(self.precision.scaler.state_dict() | {"scale": scale})

    def step(self, seed: int, spoil: float | None = None):
        inputs, ids = self.make_batch(SIZE, seed)
        if spoil is not None:
            inputs[0][0] = spoil
        return training_step(
            self.model, self.loss, self.optimizer, [LocalBatch(inputs, ids, [SIZE])], 2.0, self.precision
        )

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in self.model.named_parameters()}


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_losses_stay_near_those_of_float32(system: str, precision: str):
    exact = Run(system, "float32")
    near = Run(system, precision, 128.0 if precision == "fp16" else None)
    pairs = [(exact.step(seed), near.step(seed)) for seed in range(5)]
    for ours, other in pairs:
        assert other.check()
        assert other.loss.dtype == torch.float32
        assert other.loss.item() == pytest.approx(ours.loss.item(), rel=0.02)
        assert other.gradient_norm.item() == pytest.approx(ours.gradient_norm.item(), rel=0.3)
    assert any(ours.loss != other.loss for ours, other in pairs)


def test_a_step_that_overflows_is_left_out_and_halves_the_scale():
    run = Run("infonce", "fp16", 2.0**24)
    before = run.weights()
    result = run.step(0)
    assert not result.check()
    assert result.loss.isfinite()
    assert result.scale == 2.0**24
    assert all(torch.equal(tensor, before[name]) for name, tensor in run.weights().items())
    assert run.step(1).scale == 2.0**23
    taken = [run.step(seed).check() for seed in range(2, 30)]
    assert taken[-1]
    assert not all(torch.equal(tensor, before[name]) for name, tensor in run.weights().items())


@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_a_loss_that_is_no_number_is_an_error_and_leaves_no_trace(precision: str):
    run = Run("infonce", precision)
    before = run.weights()
    result = run.step(0, spoil=float("nan"))
    with pytest.raises(NonFiniteLossError, match="the loss is nan"):
        result.check()
    assert all(torch.equal(tensor, before[name]) for name, tensor in run.weights().items())
    assert not any(tensor.isnan().any() for state in run.optimizer.state.values() for tensor in state.values())


def test_a_gradient_that_is_not_finite_whatever_the_scale_is_an_error():
    assert check_finite(1.0, float("inf"), 2.0) is False
    for scale in (1.0, 0.5):
        with pytest.raises(NonFiniteLossError, match="the gradient's norm is inf at a loss of 1"):
            check_finite(1.0, float("inf"), scale)


def test_a_resumed_run_goes_on_with_the_scale(tmp_path: Path):
    undisturbed = Run("infonce", "fp16", 2.0**20)
    losses = [undisturbed.step(seed).loss.item() for seed in range(16)]
    first = Run("infonce", "fp16", 2.0**20)
    for seed in range(6):
        first.step(seed)
    save_state(optimizer_tensors(first.optimizer), Progress(scaler=first.precision.scaler.state_dict()), tmp_path)
    json.loads((tmp_path / "progress.json").read_text())
    second = Run("infonce", "fp16")
    second.model.load_state_dict(first.model.state_dict())
    second.precision.scaler.load_state_dict(load_state(second.optimizer, tmp_path).scaler)
    assert [second.step(seed).loss.item() for seed in range(6, 16)] == losses[6:]


def test_accumulated_batches_have_the_mean_of_their_gradients():
    run = Run("infonce", "float32")
    run.model.double()
    run.optimizer = torch.optim.SGD(run.model.parameters(), lr=0.0)
    batches = [random_batch(size, seed) for seed, size in enumerate((12, 11, 9))]
    local_batches = [LocalBatch([inputs[0].double(), *inputs[1:]], ids, [len(ids)]) for inputs, ids in batches]
    singles = []
    for local_batch in local_batches:
        result = training_step(run.model, run.loss, run.optimizer, [local_batch], 1e9)
        singles.append((result.loss, [parameter.grad.clone() for parameter in run.model.parameters()]))
    result = training_step(run.model, run.loss, run.optimizer, local_batches, 1e9)
    assert result.loss.item() == pytest.approx(sum(loss.item() for loss, _ in singles) / 3)
    for number, parameter in enumerate(run.model.parameters()):
        expected = sum(gradients[number] for _, gradients in singles) / 3
        torch.testing.assert_close(parameter.grad, expected, atol=1e-12, rtol=1e-9)


def test_tf32_ends_where_full_precision_begins():
    class OnGpu:
        """Stands for a tensor on a GPU."""

        is_cuda = True
        device = torch.device("cpu")

    use_tf32(True)
    try:
        with full_precision(OnGpu()):
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.backends.cudnn.allow_tf32
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cudnn.allow_tf32
    finally:
        use_tf32(False)

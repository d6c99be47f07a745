"""Schedules, collapse detection, the step's safety, and exact resumption."""

from pathlib import Path

import pytest
import torch

from vse_core.losses import build_loss
from vse_core.models import build_model
from vse_core.training.collapse import CollapseDetector, CollapseError
from vse_core.training.optim import build_optimizer, cosine_decay, step_decay, with_warmup
from vse_core.training.state import Progress, load_state, optimizer_tensors, save_state
from vse_core.training.step import LocalBatch, training_step

SPECIFICATION = {
    "feature_dim": 5,
    "vocabulary_size": 11,
    "embed_dim": 8,
    "image": {"pooling": {"name": "gpo"}, "mlp": True},
    "text": {"pooling": {"name": "gpo"}, "word_dim": 6},
}


def make_batch(seed: int, size: int = 6) -> tuple[list[torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = [
        torch.randn(size, 4, 5, generator=generator).half(),
        torch.randint(1, 5, (size,), generator=generator),
        torch.randint(0, 11, (size, 7), generator=generator),
        torch.randint(1, 8, (size,), generator=generator),
    ]
    return inputs, torch.arange(size)


def make_run() -> tuple[torch.nn.Module, torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = build_model(**SPECIFICATION)
    return model, build_loss("triplet"), build_optimizer(model, 1e-3, 0.01)


def run_steps(model, loss, optimizer, seeds: range) -> list[float]:
    losses = []
    for seed in seeds:
        inputs, ids = make_batch(seed)
        losses.append(training_step(model, loss, optimizer, [LocalBatch(inputs, ids, [6])], 2.0).loss.item())
    return losses


def test_step_decay_holds_after_a_resume():
    schedule = step_decay([15, 25], 0.1)
    assert [schedule(s) for s in (0, 14, 15, 24, 25)] == pytest.approx([1, 1, 0.1, 0.1, 0.01])


def test_cosine_and_warmup():
    schedule = with_warmup(cosine_decay(100, 0.0), 9)
    assert schedule(0) == pytest.approx(0.1)
    assert schedule(50) == pytest.approx(0.5)
    assert schedule(100) == pytest.approx(0.0)
    assert with_warmup(step_decay([], 1.0), 0)(0) == 1.0


def test_a_second_warmup_leaves_the_steps_before_it_alone():
    schedule = with_warmup(step_decay([], 1.0), 3, start=2)
    assert [schedule(step) for step in range(7)] == pytest.approx([1.0, 1.0, 0.25, 0.5, 0.75, 1.0, 1.0])


def test_a_saved_run_goes_on_with_the_same_losses(tmp_path: Path):
    undisturbed = run_steps(*make_run(), range(6))
    model, loss, optimizer = make_run()
    run_steps(model, loss, optimizer, range(3))
    progress = Progress(epoch=2, step=3, plateau_steps=4, history=({"rsum": 12.5}, {"rsum": 11.0}))
    save_state(optimizer_tensors(optimizer), progress, tmp_path)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model, loss, optimizer = make_run()
    model.load_state_dict(weights)
    assert load_state(optimizer, tmp_path) == progress
    assert progress.best_epoch == 0
    assert run_steps(model, loss, optimizer, range(3, 6)) == undisturbed[3:]


def test_a_saved_run_goes_on_with_parameters_in_another_layout(tmp_path: Path):
    def train(model, optimizer, seeds: range) -> None:
        for seed in seeds:
            generator = torch.Generator().manual_seed(seed)
            optimizer.zero_grad()
            model(torch.rand(2, 3, 5, 5, generator=generator)).square().sum().backward()
            optimizer.step()

    def make() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        return model, build_optimizer(model, 0.1, 0.0)

    undisturbed, optimizer = make()
    train(undisturbed, optimizer, range(6))
    model, optimizer = make()
    train(model, optimizer, range(3))
    save_state(optimizer_tensors(optimizer), Progress(), tmp_path)
    resumed = build_optimizer(model, 0.1, 0.0)
    load_state(resumed, tmp_path)
    train(model, resumed, range(3, 6))
    assert torch.equal(model.weight, undisturbed.weight)


def test_another_models_optimiser_state_is_refused(tmp_path: Path):
    model, loss, optimizer = make_run()
    run_steps(model, loss, optimizer, range(1))
    save_state(optimizer_tensors(optimizer), Progress(), tmp_path)
    with pytest.raises(ValueError, match="not this model's"):
        load_state(build_optimizer(torch.nn.Linear(2, 2), 1e-3, 0.0), tmp_path)


def test_gradients_are_clipped():
    model, loss, optimizer = make_run()
    inputs, ids = make_batch(0)
    result = training_step(model, loss, optimizer, [LocalBatch(inputs, ids, [6])], 1e-3)
    clipped = torch.sqrt(sum(p.grad.square().sum() for p in model.parameters()))
    assert result.gradient_norm > 1e-3
    assert clipped.item() == pytest.approx(1e-3, rel=1e-3)


def test_collapse_is_named_after_patience_steps_only():
    detector = CollapseDetector(patience=3)
    for loss in (0.4, 0.4005, 0.3, 0.4, 0.4):
        detector.update(loss, plateau=0.4)
    with pytest.raises(CollapseError, match=r"loss\.all_negatives"):
        detector.update(0.3999, plateau=0.4)

"""Which steps are captured and replayed, and that they are the eager ones; a double stands for CUDA graphs.

A GPU's own graphs are compared with its eager steps in tests/vse_core/test_gpu.py.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock, patch

import pytest
import torch

from tests.vse_core.training.test_processes import SYSTEMS, batch_of
from tests.vse_core.training.tiny_unified import tiny_unified
from tests.vse_core.training.tiny_views import TinyViews, random_batch
from vse_core.losses import build_loss
from vse_core.training import graphs
from vse_core.training.graphs import WARM_UP, GraphedSteps
from vse_core.training.mixed_precision import MixedPrecision
from vse_core.training.optim import build_optimizer, set_learning_rate
from vse_core.training.step import LocalBatch, StepResult, training_step


class Double:
    """Records work as a GPU does, without doing it; a replay does it and writes to where the first result was."""

    def __init__(self) -> None:
        self.captures = 0

    def __call__(self, work: Callable[[], StepResult]) -> tuple[Callable[[], None], StepResult]:
        self.captures += 1
        zero = torch.zeros(())
        result = StepResult(zero.clone(), {}, zero.clone(), zero.clone())

        def replay() -> None:
            done = work()
            for here, there in ((result.loss, done.loss), (result.gradient_norm, done.gradient_norm)):
                here.copy_(there)
            result.parts.update(done.parts)

        return replay, result


def run(name: str = "triplet", **options: Any) -> tuple[GraphedSteps, Double, Any, Any]:
    model = tiny_unified() if name == "unified" else TinyViews(views=2)
    loss = build_loss(**SYSTEMS[name])
    optimizer = build_optimizer(model, 5e-3, 0.01, of_loss=list(loss.parameters()))
    double = Double()
    with patch.object(graphs, "cuda_recorder", lambda: double):
        return GraphedSteps(model, optimizer, 2.0, MixedPrecision()), double, loss, optimizer


def batch(size: int, seed: int) -> LocalBatch:
    inputs, ids = random_batch(size, seed)
    return LocalBatch(inputs, ids, [size])


@pytest.mark.parametrize("name", ["triplet", "sigmoid-learned", "multi_view-joint"])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_replayed_steps_are_the_eager_ones(name: str, accumulated: int):
    take, double, loss, optimizer = run(name)
    model, exact = TinyViews(views=2), build_loss(**SYSTEMS[name])
    eager = build_optimizer(model, 5e-3, 0.01, of_loss=list(exact.parameters()))
    for step in range(8):
        batches = [batch(7, 10 * step + number) for number in range(accumulated)]
        for each in (optimizer, eager):
            set_learning_rate(each, 5e-3 / (step + 1))
        diagnosed = step % 4 == 3
        found = take(loss, batches, diagnosed)
        expected = training_step(model, exact, eager, batches, 2.0, diagnosed=diagnosed)
        assert found.loss.item() == expected.loss.item()
        assert ("positive_similarity" in found.parts) == diagnosed
        assert found.gradient_norm.item() == expected.gradient_norm.item()
    assert (take.eager, take.replayed, double.captures) == (WARM_UP + 2, 4, 1)


def test_each_shape_and_loss_has_a_graph_of_its_own_and_those_seen_rarely_none():
    take, double, loss, _ = run()
    other = build_loss("triplet", negatives="all")
    for size, objective in ((7, loss), (5, loss), (7, other)):
        for seed in range(WARM_UP + 2):
            take(objective, [batch(size, seed)], diagnosed=False)
    take(loss, [batch(4, 0)], diagnosed=False)
    assert (double.captures, take.replayed, take.eager) == (3, 6, 3 * WARM_UP + 1)


def test_a_batch_is_copied_so_that_its_memory_may_be_used_again():
    take, _, loss, _ = run()
    batches = [batch(7, seed) for seed in range(WARM_UP + 1)]
    for each in batches:
        take(loss, [each], diagnosed=False)
    held = next(iter(take._graphs.values())).batches[0]
    assert all(held.inputs[place] is not batches[-1].inputs[place] for place in range(4))
    assert torch.equal(held.inputs[0], batches[-1].inputs[0])


def test_components_whose_numbers_differ_in_every_batch_run_eagerly():
    take, double, loss, _ = run("unified")
    inputs, ids = batch_of("unified", 1)
    for _ in range(WARM_UP + 2):
        take(loss, [LocalBatch(inputs, ids, [len(ids)])], diagnosed=False)
    assert (double.captures, take.eager, take.replayed) == (0, WARM_UP + 2, 0)


def test_a_step_that_cannot_be_captured_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    model = TinyViews(views=2)
    refuses = Mock(side_effect=RuntimeError("operation not permitted when stream is capturing"))
    monkeypatch.setattr(graphs, "cuda_recorder", lambda: refuses)
    take = GraphedSteps(model, build_optimizer(model, 5e-3, 0.01), 2.0, MixedPrecision())
    loss = build_loss("triplet")
    for seed in range(WARM_UP):
        take(loss, [batch(7, seed)], diagnosed=False)
    with pytest.raises(RuntimeError, match=r"not permitted.*set training\.cuda_graphs to false"):
        take(loss, [replace(batch(7, 9))], diagnosed=False)


def test_a_capturable_optimiser_keeps_its_rates_on_the_device():
    model = TinyViews(views=2)
    optimizer = build_optimizer(model, 5e-3, 0.01, rate_factors={"views": 0.5}, capturable=True)
    held = [group["lr"] for group in optimizer.param_groups]
    assert set_learning_rate(optimizer, 0.25) == {"": 0.25, "views": 0.125}
    assert [rate.item() for rate in held] == [0.25, 0.125]
    assert all(here is there["lr"] for here, there in zip(held, optimizer.param_groups, strict=True))

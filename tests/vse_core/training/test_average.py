"""The moving average of weights against its definition."""

from pathlib import Path

import torch
from torch import nn

from vse_core.training.average import averaged, update_average
from vse_core.training.optim import build_optimizer
from vse_core.training.state import Progress, load_state, optimizer_tensors, save_state


def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()
    update_average(optimizer, 0.7)


def test_the_average_of_all_steps_and_the_weights_after_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = build_optimizer(model, 0.1, 0.0)
    expected: list[torch.Tensor] = []
    for number in range(5):
        step(model, optimizer, number)
        now = [parameter.detach().clone() for parameter in model.parameters()]
        expected = [0.7 * a + 0.3 * w for a, w in zip(expected, now, strict=True)] if expected else now
    with averaged(optimizer):
        torch.testing.assert_close([parameter.detach() for parameter in model.parameters()], expected)
    assert all(map(torch.equal, model.parameters(), now))

    save_state(optimizer_tensors(optimizer), Progress(), tmp_path)
    again = nn.Linear(3, 2)
    again.load_state_dict(model.state_dict())
    restored = build_optimizer(again, 0.1, 0.0)
    load_state(restored, tmp_path)
    for each, its in ((model, optimizer), (again, restored)):
        step(each, its, 5)
        with averaged(its):
            results = [parameter.detach().clone() for parameter in each.parameters()]
        expected = results if each is model else expected
    assert all(map(torch.equal, results, expected))


def test_without_an_average_the_weights_stay() -> None:
    model = nn.Linear(3, 2)
    before = model.weight.detach().clone()
    with averaged(build_optimizer(model, 0.1, 0.0)):
        assert torch.equal(model.weight, before)

"""AdamW with rates by submodule, against its update written out and against one group."""

import pytest
import torch
from torch import Tensor, nn

from vse_core.training.optim import build_optimizer, set_learning_rate


def make_model() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict(
        {
            "image": nn.Linear(2, 2),
            "text": nn.ModuleDict(
                {"bert": nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), "linear": nn.Linear(2, 2)}
            ),
            "textual": nn.Linear(2, 2),
        }
    )


def gradients(model: nn.Module, step: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return {name: torch.randn(value.shape, generator=generator) for name, value in model.named_parameters()}


def naive_adamw(weight: Tensor, steps: list[tuple[float, Tensor]], decay: float) -> Tensor:
    """Loshchilov and Hutter (2019), algorithm 2, with betas 0.9 and 0.999."""
    first, second = torch.zeros_like(weight), torch.zeros_like(weight)
    for count, (rate, gradient) in enumerate(steps, start=1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient * gradient
        step = (first / (1 - 0.9**count)) / ((second / (1 - 0.999**count)).sqrt() + 1e-8)
        weight = weight - rate * step - rate * decay * weight
    return weight


def run(model: nn.Module, optimizer: torch.optim.Optimizer, rates: list[float]) -> None:
    for step, rate in enumerate(rates):
        set_learning_rate(optimizer, rate)
        for name, gradient in gradients(model, step).items():
            model.get_parameter(name).grad = gradient
        optimizer.step()


def test_each_submodule_at_its_rate() -> None:
    factors = {"text.bert": 0.1, "text.bert.1": 0.5, "image": 2.0}
    share = {"text.bert.0": 0.1, "text.bert.1": 0.5, "text.linear": 1.0, "image": 2.0, "textual": 1.0}
    model, rates = make_model(), [0.1, 0.02, 0.05]
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    run(model, build_optimizer(model, 0.1, 0.3, factors), rates)
    for name, value in model.named_parameters():
        own = share[name.rpartition(".")[0]]
        steps = [(own * rate, gradients(model, step)[name]) for step, rate in enumerate(rates)]
        torch.testing.assert_close(value.detach(), naive_adamw(before[name], steps, 0.3), atol=1e-6, rtol=1e-5)


def test_a_factor_of_zero_freezes_a_submodule_and_no_other() -> None:
    model = make_model()
    optimizer = build_optimizer(model, 0.1, 0.3, {"text.bert": 0, "text.bert.1": 0.5})
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    assert frozen == ["text.bert.0.weight", "text.bert.0.bias"]
    learned = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    assert learned == {id(parameter) for parameter in model.parameters() if parameter.requires_grad}


def test_without_factors_it_is_one_group_of_all_that_trains() -> None:
    ours, theirs = make_model(), make_model()
    for model in (ours, theirs):
        model["image"].requires_grad_(False)
    optimizer = build_optimizer(ours, 0.1, 0.3)
    assert len(optimizer.param_groups) == 1
    plain = torch.optim.AdamW([p for p in theirs.parameters() if p.requires_grad], lr=0.1, weight_decay=0.3, fused=True)
    run(ours, optimizer, [0.1, 0.1])
    for step in range(2):
        for name, gradient in gradients(theirs, step).items():
            theirs.get_parameter(name).grad = gradient
        plain.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("prefix", ["text.bret", "tex", "image.weight.x"])
def test_a_name_that_is_no_submodule(prefix: str) -> None:
    with pytest.raises(ValueError, match=f"no trainable parameters under '{prefix}'"):
        build_optimizer(make_model(), 0.1, 0.0, {prefix: 0.1})

"""ADPOOL in its three variants against the written-out steps of the paper and of the released code."""

from typing import get_args

import pytest
import torch

from tests.vse_core.pooling.gradients import assert_same
from vse_core.pooling import build_pooling
from vse_core.pooling.adpool import AdaptivePooling, Variant

SETS = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LENGTHS = torch.tensor([6, 1, 4, 3])


def make(variant: str) -> AdaptivePooling:
    torch.manual_seed(1)
    module = AdaptivePooling(5, variant).double()
    for parameter in module.parameters():  # zero biases would hide their part
        torch.nn.init.normal_(parameter)
    return module


def oracle(module: AdaptivePooling, features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """One sample at a time: ranks, token level, embedding level, balance."""
    pooled = []
    for token, embedding in zip(*levels(module, features, lengths), strict=True):
        first, second = torch.stack([module.balance(token), module.balance(embedding)]).softmax(dim=0)
        pooled.append(first * token + second * embedding)
    return torch.stack(pooled)


def levels(module: AdaptivePooling, features: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The token level and the embedding level."""
    tokens, embeddings = [], []
    for sample, n in zip(features, lengths.tolist(), strict=True):
        ranked = sample[:n].sort(dim=0, descending=True).values
        if module.variant == "paper":
            logits = ranked @ module.linear.weight[0]
            token = sum(weight * row for weight, row in zip(logits.softmax(dim=0), ranked, strict=True))
        else:
            if module.variant == "release":  # padding takes part as rows of zeros
                ranked = torch.cat([ranked, ranked.new_zeros(len(sample) - n, ranked.shape[1])])
            logits = torch.relu(ranked @ module.linear.weight.T + module.linear.bias)
            token = (logits.exp() / logits.exp().sum(dim=0) * ranked).sum(dim=0)
        weights = sample[:n].exp() / sample[:n].exp().sum(dim=0)
        tokens.append(token)
        embeddings.append((weights * sample[:n]).sum(dim=0))
    return torch.stack(tokens), torch.stack(embeddings)


@pytest.mark.parametrize("variant", get_args(Variant))
def test_output_and_every_gradient(variant: str):
    module = make(variant)
    features = SETS.clone().requires_grad_()
    inputs = [features, *module.parameters()]
    expected = oracle(module, features, LENGTHS)
    assert_same(module(features, LENGTHS), expected, inputs)
    single = module.float()(SETS.float(), LENGTHS)
    torch.testing.assert_close(single, expected.float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("variant", "token", "fused"),
    [("release", [0.556407, 1.326214], [0.683818, 1.591968]), ("corrected", [0.811230, 1.642391], None)],
)
def test_recorded_numbers(variant: str, token: list[float], fused: list[float] | None):
    module = AdaptivePooling(2, variant)
    for parameter in module.parameters():
        torch.nn.init.zeros_(parameter)
    torch.nn.init.eye_(module.linear.weight)
    features = torch.tensor([[[1.0, -1.0], [0.5, 2.0], [9.0, 9.0], [9.0, 9.0]]])
    embedding = [0.811230, 1.857722]
    expected = fused or [(a + b) / 2 for a, b in zip(token, embedding, strict=True)]
    assert module(features, torch.tensor([2]))[0].tolist() == pytest.approx(expected, abs=1e-6)
    # The two levels one by one: a balance that sees only the first dimension, strongly, takes the larger of them.
    torch.nn.init.constant_(module.balance.weight[:, 1], 1e3)
    assert module(features, torch.tensor([2]))[0].tolist() == pytest.approx(embedding, abs=1e-6)
    torch.nn.init.constant_(module.balance.weight[:, 1], -1e3)
    assert module(features, torch.tensor([2]))[0].tolist() == pytest.approx(token, abs=1e-6)


@pytest.mark.parametrize("share", [0, 0.25, 1.0, "random"])
@pytest.mark.parametrize("variant", get_args(Variant))
def test_a_fixed_balance_is_the_weight_of_the_token_level(variant: str, share: float | str):
    torch.manual_seed(3)
    module = AdaptivePooling(5, variant, share).double()
    learned = make(variant)
    fixed = float(module.token_share)
    assert fixed == share if share != "random" else 0 < fixed < 1
    if module.linear is not None:
        learned.linear.load_state_dict(module.linear.state_dict())
    token, embedding = levels(learned, SETS, LENGTHS)
    torch.testing.assert_close(module(SETS, LENGTHS), fixed * token + (1 - fixed) * embedding, atol=1e-6, rtol=1e-6)
    module(SETS.clone().requires_grad_(), LENGTHS).sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_without_the_token_level_it_is_softpool_and_a_random_share_is_saved():
    torch.testing.assert_close(
        AdaptivePooling(5, token_share=0)(SETS, LENGTHS), build_pooling("softpool", 5)(SETS, LENGTHS)
    )
    drawn = [AdaptivePooling(5, token_share="random") for _ in range(2)]
    assert drawn[0].token_share != drawn[1].token_share
    drawn[1].load_state_dict(drawn[0].state_dict())
    assert drawn[0].token_share == drawn[1].token_share


def test_the_release_depends_on_padding_and_the_correction_does_not():
    padded = torch.cat([SETS, torch.randn(4, 3, 5, dtype=torch.float64)], dim=1)
    release, corrected = make("release"), make("corrected")
    assert release.state_dict().keys() == corrected.state_dict().keys()
    corrected.load_state_dict(release.state_dict())
    torch.testing.assert_close(corrected(padded, LENGTHS), corrected(SETS, LENGTHS))
    assert (release(padded, LENGTHS) - release(SETS, LENGTHS)).abs().amax(dim=1).gt(1e-3).all()
    full = torch.full((4,), 6)
    torch.testing.assert_close(release(SETS, full), corrected(SETS, full))


def test_names_and_shapes_of_released_checkpoints():
    release = {name: tuple(tensor.shape) for name, tensor in AdaptivePooling(1024, "release").state_dict().items()}
    assert release == {
        "linear.weight": (1024, 1024), "linear.bias": (1024,), "balance.weight": (1, 1024), "balance.bias": (1,),
    }  # fmt: skip
    assert sum(p.numel() for p in AdaptivePooling(1024, "paper").parameters()) == 2 * 1024


def test_initialisation_is_that_of_the_release():
    torch.manual_seed(0)
    linear = AdaptivePooling(256).linear
    assert linear.bias.eq(0).all()
    assert linear.weight.abs().max() <= (6 / 512) ** 0.5
    torch.testing.assert_close(linear.weight.std(), torch.tensor((2 / 512) ** 0.5), rtol=0.02, atol=0)


@pytest.mark.parametrize("share", [-0.1, 1.5, "half"])
def test_shares_that_cannot_be_are_refused(share: float | str) -> None:
    with pytest.raises(ValueError, match="token_share must be learned, random, or a number from 0 to 1"):
        AdaptivePooling(5, token_share=share)

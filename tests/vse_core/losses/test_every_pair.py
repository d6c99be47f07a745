"""The sigmoid loss next to the losses of UniVSE and VSE-C, against loops over its pairs."""

import pytest
import torch

from tests.vse_core.losses import oracles
from tests.vse_core.losses.batches import nested, random_batch
from tests.vse_core.losses.test_unified import random_output
from vse_core.losses import EveryPairLoss, GlobalLoss, SigmoidLoss
from vse_core.losses.adversarial import AdversarialLoss, AdversarialOutput
from vse_core.losses.unified import UnifiedLoss


def adversarial_output(seed: int) -> tuple[AdversarialOutput, torch.Tensor]:
    images, texts, ids = random_batch(seed, 5, 2)
    return AdversarialOutput(images, texts, random_batch(seed + 1, 5, 1)[1]), ids


def outputs(name: str, seed: int) -> tuple[GlobalLoss, object, torch.Tensor]:
    if name == "unified":
        return UnifiedLoss(), *random_output(seed)
    return AdversarialLoss(), *adversarial_output(seed)


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("name", ["unified", "vse_c"])
@pytest.mark.parametrize("seed", [1, 2])
def test_against_loops_over_all_pairs(name: str, seed: int, mask: bool) -> None:
    loss, output, ids = outputs(name, seed)
    sigmoid = SigmoidLoss(temperature=0.2, bias=-3.0, mask_same_image=mask, learned=True).double()
    alone, found = loss(output, ids), EveryPairLoss(loss, sigmoid, 0.7)(output, ids)
    texts = output.sentences_bD if name == "unified" else output.texts_bD
    expected = oracles.sigmoid(nested(output.images_bKD, texts), ids.tolist(), 0.2, -3.0, mask)
    assert found.parts["every_pair"].item() == pytest.approx(expected)
    assert found.total.item() == pytest.approx(alone.total.item() + 0.7 * expected)
    assert found.parts.keys() == alone.parts.keys() | {"every_pair", "temperature", "bias"}
    for part, value in alone.parts.items():
        assert found.parts[part].item() == value.item()


def test_gradients() -> None:
    (images, texts, wrong), ids = adversarial_output(3)
    loss = EveryPairLoss(AdversarialLoss(margin=0.4), SigmoidLoss(bias=-1.0, learned=True).double(), 2.0)
    inputs = [tensor.requires_grad_() for tensor in (images, texts, wrong)]
    assert torch.autograd.gradcheck(lambda *x: loss(AdversarialOutput(*x), ids).total, inputs)
    loss(AdversarialOutput(*inputs), ids).total.backward()
    assert all(parameter.grad.abs() > 1e-3 for parameter in loss.parameters())


def test_no_weight_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be positive, got 0\.0"):
        EveryPairLoss(UnifiedLoss(), SigmoidLoss(), 0.0)

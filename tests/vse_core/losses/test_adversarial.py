"""The loss of VSE-C, and how its model finds each image's hardest adversarial caption."""

import pytest
import torch

from tests.vse_core.losses.batches import random_batch
from tests.vse_core.training.tiny_unified import adversarial_batch, tiny_adversarial
from vse_core.losses import build_loss
from vse_core.losses.adversarial import AdversarialLoss


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_against_a_loop(reduction: str):
    images, texts, ids = random_batch(1, 5, 2)
    adversarial = random_batch(2, 5, 1)[1]
    loss = AdversarialLoss(margin=0.3, reduction=reduction, mask_same_image=True)
    result = loss(images, texts, adversarial, ids)
    plain = build_loss("triplet", margin=0.3, reduction=reduction, mask_same_image=True)(images, texts, ids)
    expected = 0.0
    for i in range(5):
        own, wrong = (max(float(view @ text[i]) for view in images[i]) for text in (texts, adversarial))
        expected += max(0.0, 0.3 + wrong - own)
    expected /= 5 if reduction == "mean" else 1
    assert result.parts["adversarial"].item() == pytest.approx(expected)
    assert result.total.item() == pytest.approx(plain.total.item() + expected)
    assert expected > 0


def test_without_adversarial_captions_it_is_the_triplet_loss():
    images, texts, ids = random_batch(1, 5, 2)
    found, expected = AdversarialLoss()(images, texts, None, ids), build_loss("triplet")(images, texts, ids)
    assert found.total == expected.total
    assert found.parts.keys() == expected.parts.keys()


def test_gradients():
    images, texts, ids = random_batch(8, 4, 2, dim=3)
    adversarial = random_batch(3, 4, 1, dim=3)[1]
    loss, inputs = AdversarialLoss(margin=0.4), [x.requires_grad_() for x in (images, texts, adversarial)]
    assert torch.autograd.gradcheck(lambda *x: loss(*x, ids).total, inputs)


def test_the_hardest_of_all_adversarial_captions_is_encoded_once_more():
    model = tiny_adversarial()
    inputs, _ = adversarial_batch(6, seed=3)
    output = model(*inputs)
    pool = model.towers.encode_texts(*inputs[4:]).detach()
    for image, hardest in zip(output.images_bKD.detach(), output.hardest_bD, strict=True):
        similarities = [max(float(view @ text) for view in image) for text in pool]
        torch.testing.assert_close(hardest, pool[similarities.index(max(similarities))])
    # The gradient is that of the captions that are someone's hardest, and of them alone.
    parameters = list(model.towers.text_encoder.parameters())
    found = torch.autograd.grad(output.hardest_bD[0].sum(), parameters)
    row = int((output.images_bKD[0] @ pool.T).amax(dim=0).argmax())
    alone = model.towers.encode_texts(inputs[4][row : row + 1], inputs[5][row : row + 1])
    for mine, theirs in zip(found, torch.autograd.grad(alone.sum(), parameters), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_no_adversarial_captions():
    model = tiny_adversarial()
    inputs, ids = adversarial_batch(6, seed=3)
    assert model(*inputs[:4]).hardest_bD is None
    output = model(*inputs[:4], inputs[4][:0], inputs[5][:0])
    assert output.hardest_bD is None
    assert AdversarialLoss().from_local_batch(output, ids, [6]).total > 0

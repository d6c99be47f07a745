"""Blocks of the loss: what they hold for the backward pass, and that all pairs are in them.

That losses and gradients are those of the batch at once, for every loss and on several processes, is in
tests/vse_core/training/test_processes.py.
"""

import pytest
import torch

from tests.vse_core.losses.batches import random_batch
from vse_core.losses import build_loss, global_pairs
from vse_core.losses.global_pairs import CAPTIONS, IMAGES, Block, GlobalPairs
from vse_core.similarity import similarity_matrix

PAIRS = 40


@pytest.mark.parametrize("numbers", [1, 2 * PAIRS, 7 * PAIRS, 10**9])
@pytest.mark.parametrize("side", [IMAGES, CAPTIONS])
@pytest.mark.parametrize("mask", [False, True])
def test_every_similarity_is_in_one_block(monkeypatch, numbers: int, side: bool, mask: bool):
    monkeypatch.setattr(global_pairs, "BLOCK", numbers)
    images, texts, ids = random_batch(3, PAIRS, 2)
    pairs, blocks = GlobalPairs(images, texts, ids, [PAIRS], mask), list[Block]()
    pairs.sums(lambda block: blocks.append(block) or {"anchors": torch.tensor(len(block.sims_AC))}, (side,))
    expected = similarity_matrix(images, texts)
    negative = torch.tensor([[i != j and not (mask and ids[i] == ids[j]) for j in range(PAIRS)] for i in range(PAIRS)])
    torch.testing.assert_close(
        torch.cat([block.sims_AC for block in blocks]), expected if side == IMAGES else expected.T
    )
    assert torch.equal(torch.cat([block.negative_AC for block in blocks]), negative)
    assert torch.equal(torch.cat([block.own_mask() for block in blocks]), torch.eye(PAIRS, dtype=torch.bool))
    torch.testing.assert_close(torch.cat([block.own(block.sims_AC) for block in blocks]), expected.diagonal())
    sizes = [block.sims_AKC.numel() for block in blocks]
    assert max(sizes) <= max(numbers, 2 * PAIRS)


@pytest.mark.parametrize("name", ["triplet", "multi_view", "adopt", "infonce", "sigmoid", "complementary"])
def test_blocks_keep_no_similarities_for_the_backward_pass(monkeypatch, name: str):
    images, texts, ids = random_batch(3, PAIRS, 2)
    images.requires_grad_()
    texts.requires_grad_()

    def kept() -> int:
        sizes: dict[int, int] = {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            sizes[tensor.data_ptr()] = tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            build_loss(name)(images, texts, ids)
        return sum(sizes.values())

    at_once = kept()
    monkeypatch.setattr(global_pairs, "BLOCK", 4 * PAIRS)
    assert at_once > PAIRS**2
    assert kept() < PAIRS**2 / 4

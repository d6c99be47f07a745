"""Batches arrive on the device in order and whole, and the loader is let go of with them."""

from collections.abc import Iterator

import pytest
import torch

from preprocessing.loading.batch import Batch, prefetch_to_device


def make_batch(number: int) -> Batch:
    features = torch.full((4, 3, 2), float(number), dtype=torch.float16)
    ids = torch.full((4,), number)
    return Batch(features, ids, ids.unsqueeze(1), ids, ids, ids, {"objects_O": ids, "tokens_PL": ids.unsqueeze(1)})


class Source:
    """Batches 0 to 4, with a note of what was taken and whether it was closed."""

    def __init__(self, pin: bool) -> None:
        self.taken, self.closed, self.pin = 0, False, pin

    def __iter__(self) -> Iterator[Batch]:
        try:
            for number in range(5):
                self.taken += 1
                batch = make_batch(number)
                yield batch.pin() if self.pin else batch
        finally:
            self.closed = True


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_batches_in_order(device: str):
    source = Source(pin=device == "cuda")
    found = list(prefetch_to_device(iter(source), torch.device(device)))
    assert len(found) == 5
    for number, batch in enumerate(found):
        expected = make_batch(number)
        assert batch.images.device.type == device
        assert torch.equal(batch.images.cpu(), expected.images)
        assert torch.equal(batch.extra["objects_O"].cpu(), expected.caption_indices_B)
        assert torch.equal(batch.extra["tokens_PL"].cpu(), expected.tokens_BL)
    assert source.closed


@pytest.mark.gpu
def test_the_next_batch_is_on_its_way_while_one_is_used():
    source = Source(pin=True)
    batches = prefetch_to_device(iter(source), torch.device("cuda"))
    next(batches)
    assert source.taken == 2


@pytest.mark.gpu
def test_memory_is_not_used_again_before_the_computation_is_done():
    device = torch.device("cuda")
    found = []
    for batch in prefetch_to_device(iter(Source(pin=True)), device):
        torch.cuda._sleep(50_000_000)  # the copies of later batches overtake this
        found.append(batch.images.sum())
        del batch
    assert [int(total) for total in found] == [24 * number for number in range(5)]

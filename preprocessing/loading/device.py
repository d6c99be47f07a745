"""Batches copied to the device while it computes."""

from collections.abc import Generator, Iterator

import torch

from preprocessing.loading.batch import Batch


def prefetch_to_device(batches: Iterator[Batch], device: torch.device) -> Generator[Batch, None, None]:
    """Yield batches on a device; a GPU copies the next one while it computes with the one that was yielded.

    The copies have a stream of their own. The stream of the computation waits only for the copy of its own batch, and
    the host for none; that takes batches in page-locked memory.
    """
    if device.type != "cuda":
        yield from (batch.to(device) for batch in batches)
        return
    copies = torch.cuda.Stream(device)
    waiting: tuple[Batch, torch.cuda.Event] | None = None
    for batch in batches:
        with torch.cuda.stream(copies):
            copied = batch.to(device), copies.record_event()
        if waiting is not None:
            yield _handed_over(*waiting)
        waiting = copied
    if waiting is not None:
        yield _handed_over(*waiting)


def _handed_over(batch: Batch, copied: torch.cuda.Event) -> Batch:
    """Let the current stream wait for a batch's copy; return the batch."""
    stream = torch.cuda.current_stream(batch.images.device)
    stream.wait_event(copied)
    # The memory came from the other stream, which must not reuse it before this one is done with it.
    batch.record_stream(stream)
    return batch

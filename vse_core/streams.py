"""Two pieces of work at the same time on a GPU: those of a CUDA graph that do not depend on each other."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor


def beside(name: str, like: Tensor, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Begin work on the stream of this name, and return what gives its result where it is needed.

    A graph in the making keeps the two apart until then. Anything else has the work done at once: the host, which
    starts operators one after the other, would only have more to do. ``like`` is on the work's device. For
    its gradient the work may read what it computed itself, weights, and inputs of the step: memory of anything else may
    be written to again, on the stream that it comes from, before that gradient is computed.
    """
    if not like.is_cuda or not torch.cuda.is_current_stream_capturing():
        result = work()
        return lambda: result
    here, there = torch.cuda.current_stream(like.device), _stream(name, like.device)
    there.wait_stream(here)
    with torch.cuda.stream(there):
        done = work()

    def joined() -> Tensor:
        """Return the result, after whose work the current stream goes on."""
        here.wait_stream(there)
        done.record_stream(here)
        return done

    return joined


@cache
def _stream(_name: str, device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)

"""What runs on a stream of its own keeps nothing for its gradient that other work may let go of; seen without a GPU.

The gradient is computed on that stream too, and what is let go of meanwhile is another stream's to write to.
"""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from vse_core import recurrent, static_shapes
from vse_core.models import build_model
from vse_core.models import model as models

GPO = {"pooling": {"name": "gpo"}}
PARTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "vse_infinity": (GPO, GPO),
    "vsepp": ({"pooling": {"name": "mean"}}, {"pooling": {"name": "last"}, "directions": 1}),
    "mv_vse": (GPO | {"views": 3}, GPO),
    "vse_2ad": ({"pooling": {"name": "adpool"}}, {"pooling": {"name": "adpool"}}),
}


class Made(TorchDispatchMode):
    """Holds on to all that is computed, so that no memory is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: dict[int, Tensor] = {}

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {memory_of(value) for value in args if isinstance(value, Tensor)}
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, Tensor) and memory_of(tensor) not in given:
                self.memory[memory_of(tensor)] = tensor
        return result


def memory_of(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@pytest.mark.parametrize("name", PARTS)
def test_a_stream_keeps_nothing_of_the_others(name: str) -> None:
    image, text = PARTS[name]
    model = build_model(16, 30, 8, image=image, text=text)
    inputs = [
        torch.rand(4, 6, 16),
        torch.tensor([6, 3, 5, 6]),
        torch.randint(0, 30, (4, 8)),
        torch.tensor([8, 2, 5, 4]),
    ]
    lasting = {memory_of(tensor) for tensor in (*inputs, *model.state_dict().values(), *model.buffers())}
    kept: dict[str, list[tuple[int, ...]]] = {}

    def noted(work_name: str, like: Tensor, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        saved: list[Tensor] = []

        def note(tensor: Tensor) -> Tensor:
            saved.append(tensor)
            return tensor

        with Made() as made, saved_tensors_hooks(note, lambda tensor: tensor):
            result = work()
        # Words are gathered from `like` in the other order, whose gradient asks for its shape alone.
        own = lasting | made.memory.keys() | {memory_of(like)}
        kept[work_name] = [tuple(tensor.shape) for tensor in saved if memory_of(tensor) not in own]
        assert saved
        return lambda: result

    with (
        patch.object(static_shapes, "EVERYWHERE", True),
        patch.object(recurrent, "beside", noted),
        patch.object(models, "beside", noted),
    ):
        model(*inputs)
    assert "images" in kept
    assert not any(kept.values()), kept

"""The components of captions as a model takes them (UniVSE).

O objects, A pairs of an adjective and a noun, T triples of a subject, a relation and an object, N negatives of a
component, L words of the longest triple, X triples of an image, C captions.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """The components of C captions, all in one vocabulary of word ids; O, A and T may be 0.

    The owner of a component is the row of its caption; components may come in any order. Negatives, and what follows
    them, are what training contrasts a component with.

    Objects are ids of nouns, pairs of an adjective and its noun, triples of a subject, the words of a relation and an
    object, filled up with -1. Negatives are other nouns; pairs, the first half with another adjective, the second half
    with another noun; triples of which subject, relation or object is another. Triples of one number are equal in all
    batches and processes; the numbers of those that are true of a caption's image are filled up with -1.
    """

    objects_O: Tensor
    object_owner_O: Tensor
    object_negatives_ON: Tensor | None = None
    pairs_A2: Tensor
    pair_owner_A: Tensor
    pair_negatives_AN2: Tensor | None = None
    triples_TL: Tensor
    triple_owner_T: Tensor
    triple_negatives_TNL: Tensor | None = None
    triple_numbers_T: Tensor | None = None
    true_triples_CX: Tensor | None = None

    def to(self, device: torch.device | str) -> Self:
        """Copy to a device; from pinned memory the copy overlaps with computation."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> Self:
        """Copy to page-locked memory, from which :meth:`to` copies to a GPU without waiting."""
        return self._map(torch.Tensor.pin_memory)

    def without_negatives(self) -> Self:
        """The components alone, as inference needs them."""
        optional: dict[str, Any] = {field.name: None for field in fields(self) if field.default is None}
        return replace(self, **optional)

    def __getitem__(self, rows: slice) -> Self:
        """The components of the captions from row ``start`` to before row ``stop``, whose rows count from 0 there."""
        start, stop = rows.start, rows.stop
        owners = {"O": self.object_owner_O, "A": self.pair_owner_A, "T": self.triple_owner_T}
        kept: dict[str, Tensor | slice] = {axis: (owner >= start) & (owner < stop) for axis, owner in owners.items()}
        kept["C"] = rows
        chosen = {
            name: value[kept[name.rpartition("_")[2][0]]] - (start if "_owner_" in name else 0)
            for name, value in self._tensors().items()
        }
        return replace(self, **chosen)

    def _map(self, change: Callable[[Tensor], Tensor]) -> Self:
        return replace(self, **{name: change(tensor) for name, tensor in self._tensors().items()})

    def _tensors(self) -> dict[str, Tensor]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

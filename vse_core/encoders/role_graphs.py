"""Role graphs of captions as a model takes them (HGR).

C captions, L tokens, A actions and E entities at most.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

ROLES = 16
"""Roles that an action or an entity may have; action is the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleGraphs:
    """Who does what: the actions of C captions, their entities, and which entity has a part in which action.

    Actions and entities stand in any places of theirs; one without words is none.

    Attributes:
        actions_CAL: bool, which tokens of its caption an action consists of.
        entities_CEL: bool, the same of an entity.
        roles_CE: int64, the role of each entity, below `ROLES`.
        linked_CAE: bool, whether an entity has a part in an action.
    """

    actions_CAL: Tensor
    entities_CEL: Tensor
    roles_CE: Tensor
    linked_CAE: Tensor

    @property
    def action_mask(self) -> Tensor:
        """True where there is an action (C, A)."""
        return self.actions_CAL.any(dim=-1)

    @property
    def entity_mask(self) -> Tensor:
        """True where there is an entity (C, E)."""
        return self.entities_CEL.any(dim=-1)

    @property
    def edges(self) -> Tensor:
        """What reaches what (C, M, M), receivers first, of the M = 1 + A + E nodes: the caption, actions, entities.

        The caption reaches its actions and nothing reaches the caption; actions and their entities reach each other.
        """
        actions_CA, entities_CE = self.action_mask, self.entity_mask
        captions, actions = actions_CA.shape
        nodes = 1 + actions + entities_CE.shape[1]
        edges_CMM = self.linked_CAE.new_zeros(captions, nodes, nodes)
        linked_CAE = self.linked_CAE & actions_CA.unsqueeze(2) & entities_CE.unsqueeze(1)
        edges_CMM[:, 1 : 1 + actions, 0] = actions_CA
        edges_CMM[:, 1 : 1 + actions, 1 + actions :] = linked_CAE
        edges_CMM[:, 1 + actions :, 1 : 1 + actions] = linked_CAE.transpose(1, 2)
        return edges_CMM

    def __getitem__(self, captions: slice | Tensor) -> RoleGraphs:
        """Those of some captions."""
        return RoleGraphs(**{field.name: getattr(self, field.name)[captions] for field in fields(self)})

    def to(self, device: torch.device | str) -> RoleGraphs:
        """Copy to a device."""
        return RoleGraphs(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})

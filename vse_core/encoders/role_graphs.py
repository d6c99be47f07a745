"""Role graphs of captions as a model takes them (HGR).

C captions, L tokens, A actions and E entities at most.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from vse_core.outputs import Rows

ROLES = 16
"""Roles that an action or an entity may have; action is the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleGraphs(Rows):
    """Semantic roles of C captions: their actions, their entities, and the entities' roles in the actions.

    An action or entity without words does not exist.

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
        """Mask (C, A) of actions."""
        return self.actions_CAL.any(dim=-1)

    @property
    def entity_mask(self) -> Tensor:
        """Mask (C, E) of entities."""
        return self.entities_CEL.any(dim=-1)

    @property
    def edges(self) -> Tensor:
        """Edges (C, M, M), receivers first, of the M = 1 + A + E nodes: the caption, actions, entities.

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

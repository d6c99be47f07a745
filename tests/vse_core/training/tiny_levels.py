"""A small hierarchical model and batches for it: videos, captions and role graphs of random sizes."""

from typing import Any

import torch

from vse_core.models import build_model
from vse_core.models.hierarchical import ROLES, HierarchicalModel, RoleGraphs

WORDS, FEATURES, FRAMES, TOKENS, ACTIONS, ENTITIES = 20, 6, 5, 7, 3, 4


def tiny_levels(**text: Any) -> HierarchicalModel:
    torch.manual_seed(0)
    pooling = {"name": "gpo", "position_dim": 4, "hidden_dim": 4}
    model = build_model(
        FEATURES,
        WORDS,
        8,
        {"name": "levels", "pooling": pooling, "dropout": 0.0},
        {"name": "role_graphs", "pooling": pooling, "word_dim": 5, "dropout": 0.0, "graph_dropout": 0.0, **text},
    )
    assert isinstance(model, HierarchicalModel)
    return model


def random_graphs(lengths_C: torch.Tensor, generator: torch.Generator, without: tuple[int, ...] = ()) -> RoleGraphs:
    """Phrases of random words; captions `without` have neither actions nor entities."""
    captions, longest = len(lengths_C), int(lengths_C.max())
    real_C1L = (torch.arange(longest) < lengths_C.unsqueeze(1)).unsqueeze(1)
    some_C11 = torch.tensor([caption not in without for caption in range(captions)])[:, None, None]
    actions, entities = (
        (torch.rand(captions, kinds, longest, generator=generator) < 0.25) & real_C1L & some_C11
        for kinds in (ACTIONS, ENTITIES)
    )
    return RoleGraphs(
        actions_CAL=actions,
        entities_CEL=entities,
        roles_CE=torch.randint(1, ROLES, (captions, ENTITIES), generator=generator),
        linked_CAE=torch.rand(captions, ACTIONS, ENTITIES, generator=generator) < 0.5,
    )


def levels_batch(size: int, seed: int) -> tuple[list[Any], torch.Tensor]:
    """Inputs of the model and image ids, of which some come twice."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(size, FRAMES, FEATURES, generator=generator)
    frames = torch.randint(1, FRAMES + 1, (size,), generator=generator)
    frames[0] = FRAMES
    lengths = torch.randint(1, TOKENS + 1, (size,), generator=generator)
    lengths[0] = TOKENS
    tokens = torch.randint(WORDS, (size, TOKENS), generator=generator)
    graphs = random_graphs(lengths, generator, without=(1,))
    ids = torch.randint(2 * size, (size,), generator=generator)
    return [features, frames, tokens, lengths, graphs], ids

"""Models of UniVSE and VSE-C small enough for a test, batches for them, and the share of a batch that a process has."""

import itertools
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from vse_core.models import build_model
from vse_core.models.adversarial import AdversarialModel
from vse_core.models.hierarchical import RoleGraphs
from vse_core.models.unified import Components, UnifiedModel

WORDS = 23


def tiny_unified(dim: int = 8, **text: Any) -> UnifiedModel:
    torch.manual_seed(0)
    model = build_model(
        feature_dim=5,
        vocabulary_size=WORDS,
        embed_dim=dim,
        image={"name": "regions", "pooling": {"name": "kmax", "k": 3}},
        text={"name": "components", "word_dim": 6, "modifier_dim": 4} | text,
    )
    assert isinstance(model, UnifiedModel)
    return model


def tiny_adversarial() -> AdversarialModel:
    torch.manual_seed(0)
    image, text = {"pooling": {"name": "gpo"}, "views": 2}, {"pooling": {"name": "gpo"}, "word_dim": 6}
    return AdversarialModel(build_model(5, WORDS, 8, image=image, text=text), chunk=4)


def random_pairs(size: int, generator: torch.Generator) -> list[Tensor]:
    """Features, their lengths, tokens and their lengths, padded with what must not count."""
    return [
        torch.randn(size, 6, 5, generator=generator),
        torch.randint(1, 7, (size,), generator=generator),
        torch.randint(0, WORDS, (size, 7), generator=generator),
        torch.randint(1, 8, (size,), generator=generator),
    ]


def random_components(size: int, generator: torch.Generator, without: tuple[int, ...] = (2,)) -> Components:
    """Components of some of the captions: none of those in ``without``, no triples of the second half."""

    def owners(per_caption: int, stop: int) -> Tensor:
        drawn = torch.randint(0, stop, (per_caption * size,), generator=generator)
        return drawn[~torch.isin(drawn, torch.tensor(without))]

    def words(*shape: int) -> Tensor:
        return torch.randint(0, WORDS, shape, generator=generator)

    object_owner, pair_owner, triple_owner = owners(2, size), owners(1, size), owners(1, size // 2)
    pairs, triples = words(len(pair_owner), 2), words(len(triple_owner), 5)
    # Relations of one to three words; in the negatives it is the subject, the object or the relation's first word that
    # is another.
    lengths = torch.randint(3, 6, (len(triples), 1), generator=generator)
    triples[torch.arange(5) >= lengths] = -1
    numbers = torch.randint(0, 6, (len(triples),), generator=generator)
    pair_negatives, triple_negatives = pairs.unsqueeze(1).repeat(1, 4, 1), triples.unsqueeze(1).repeat(1, 4, 1)
    pair_negatives[:, :2, 0], pair_negatives[:, 2:, 1] = words(len(pairs), 2), words(len(pairs), 2)
    triple_negatives[:, 0, 0] = words(len(triples))
    triple_negatives[:, 3].scatter_(1, lengths - 1, words(len(triples), 1))
    triple_negatives[:, 1:3, 1] = words(len(triples), 2)
    return Components(
        objects_O=words(len(object_owner)),
        object_owner_O=object_owner,
        object_negatives_ON=words(len(object_owner), 5),
        pairs_A2=pairs,
        pair_owner_A=pair_owner,
        pair_negatives_AN2=pair_negatives,
        triples_TL=triples,
        triple_owner_T=triple_owner,
        triple_negatives_TNL=triple_negatives,
        triple_numbers_T=numbers,
        true_triples_CX=torch.randint(-1, 6, (size, 3), generator=generator),
    )


def unified_batch(size: int, seed: int) -> tuple[list[Any], Tensor]:
    """Inputs of the model and the ids of the images, of which some are equal."""
    generator = torch.Generator().manual_seed(seed)
    inputs = [*random_pairs(size, generator), random_components(size, generator)]
    return inputs, torch.randint(0, size // 2, (size,), generator=generator)


def adversarial_batch(size: int, seed: int) -> tuple[list[Tensor], Tensor]:
    """Inputs of the model, two adversarial captions a caption among them, and the ids of the images."""
    generator = torch.Generator().manual_seed(seed)
    inputs = random_pairs(size, generator)
    inputs += [
        torch.randint(0, WORDS, (2 * size, 9), generator=generator),
        torch.randint(1, 10, (2 * size,), generator=generator),
    ]
    return inputs, torch.randint(0, size // 2, (size,), generator=generator)


def selected(components: Components, kinds: dict[str, Tensor]) -> Components:
    """Some components of each kind (``object``, ``pair``, ``triple``), by a mask or by rows."""
    return replace(
        components,
        **{
            field.name: getattr(components, field.name)[kinds[field.name.split("_")[0].removesuffix("s")]]
            for field in fields(components)
            if getattr(components, field.name) is not None and field.name != "true_triples_CX"
        },
    )


def share_of(inputs: list[Any], rank: int, world: int) -> tuple[list[Any], slice, list[int]]:
    """One process's inputs, its rows of the global batch, and the rows of all processes."""
    size = len(inputs[0])
    edges = [r * size // world for r in range(world + 1)]
    mine = slice(edges[rank], edges[rank + 1])
    counts = [stop - start for start, stop in itertools.pairwise(edges)]
    own = [x[mine] for x in inputs[:4]]
    if len(inputs) == 4:
        return own, mine, counts
    if isinstance(inputs[-1], RoleGraphs):
        return [own[0][:, : own[1].max()], *own[1:], inputs[4][mine]], mine, counts
    if len(inputs) == 5:
        return [*own, _components_of(inputs[4], mine)], mine, counts
    twice = slice(2 * mine.start, 2 * mine.stop)
    # The last process has no adversarial captions; the first has its own and the last one's. Their padding differs.
    tokens, lengths = inputs[4][twice], inputs[5][twice]
    if world > 1 and rank == world - 1:
        tokens, lengths = tokens[:0], lengths[:0]
    elif world > 1 and rank == 0:
        last = slice(2 * edges[-2], 2 * edges[-1])
        tokens, lengths = torch.cat([tokens, inputs[4][last]]), torch.cat([lengths, inputs[5][last]])
    return [*own, tokens[:, : max([1, *lengths.tolist()])], lengths], mine, counts


def _components_of(components: Components, rows: slice) -> Components:
    owners = {
        "object": components.object_owner_O,
        "pair": components.pair_owner_A,
        "triple": components.triple_owner_T,
    }
    own = selected(components, {kind: (x >= rows.start) & (x < rows.stop) for kind, x in owners.items()})
    return replace(
        own,
        object_owner_O=own.object_owner_O - rows.start,
        pair_owner_A=own.pair_owner_A - rows.start,
        triple_owner_T=own.triple_owner_T - rows.start,
        true_triples_CX=components.true_triples_CX[rows],
    )

"""The loss of UniVSE against loops over its equations."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vse_core.losses.unified_oracle import total, unified_terms
from vse_core.losses.components import ComponentVectors, UnifiedOutput
from vse_core.losses.unified import UnifiedLoss


def units(*shape: int, generator: torch.Generator) -> torch.Tensor:
    vectors = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(vectors, dim=-1)


def components(count: int, images: int, negatives: int, dim: int, generator: torch.Generator) -> ComponentVectors:
    owners = torch.randint(0, images, (count,), generator=generator)
    return ComponentVectors(units(count, 1 + negatives, dim, generator=generator), owners)


def random_output(
    seed: int, images: int = 5, counts: tuple[int, int, int] = (7, 4, 5), dim: int = 4
) -> tuple[UnifiedOutput, torch.Tensor]:
    """Unit vectors in float64, some images without components, some regions padding, some images equal."""
    generator = torch.Generator().manual_seed(seed)
    has = torch.rand(images, generator=generator) < 0.7
    ids = torch.randint(0, max(2, images - 1), (images,), generator=generator)
    triples = components(counts[2], images, 3, dim, generator)
    numbers = torch.randint(0, 4, (counts[2],), generator=generator)
    mask = torch.arange(6) < torch.randint(1, 7, (images, 1), generator=generator)
    output = UnifiedOutput(
        images_bKD=units(images, 1, dim, generator=generator),
        regions_bND=units(images, 6, dim, generator=generator) * mask.unsqueeze(2),
        region_mask_bN=mask,
        sentences_bD=units(images, dim, generator=generator),
        composed_bD=units(images, dim, generator=generator) * has.unsqueeze(1),
        has_components_b=has,
        objects=components(counts[0], images, 3, dim, generator),
        pairs=components(counts[1], images, 4, dim, generator),
        triples=triples,
        triple_numbers_T=numbers,
        true_triples_bX=true_triples(ids, triples.owners_M, numbers, generator),
    )
    return output, ids


def true_triples(
    ids: torch.Tensor, owners: torch.Tensor, numbers: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """For each image the triples of its captions, those of the batch and now and then another one."""
    rows = [
        {*numbers[ids[owners] == image].tolist(), *torch.randint(0, 9, (1,), generator=generator).tolist()}
        for image in ids.tolist()
    ]
    return torch.tensor([[*row, *[-1] * (9 - len(row))] for row in rows])


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    images=st.integers(1, 6),
    counts=st.tuples(*[st.integers(0, 6)] * 3),
    mask=st.booleans(),
    negatives=st.sampled_from(["hardest", "all"]),
    temperature=st.sampled_from([1.0, 0.1]),
)
def test_against_loops_over_the_equations(seed, images, counts, mask, negatives, temperature):
    output, ids = random_output(seed, images, counts)
    weights = {"component_weight": 0.4, "object_weight": 0.6, "attribute_weight": 0.7, "relation_weight": 0.9}
    weights |= {"relevance_temperature": temperature}
    loss = UnifiedLoss(margin=0.3, mask_same_image=mask, negatives=negatives, **weights)
    result = loss(output, ids)
    expected = unified_terms(output, ids.tolist(), 0.3, mask, negatives, temperature)
    for name, term in expected.items():
        assert result.parts[name].item() == pytest.approx(term, abs=1e-9), name
    assert result.total.item() == pytest.approx(
        total(expected, {"sent": 1.0, "comp": 0.4, "obj": 0.6, "attr": 0.7, "rel": 0.9}), abs=1e-9
    )
    found = [result.parts[name].item() for name in ("objects", "pairs", "triples", "captions_with_components")]
    assert found == [*counts, output.has_components_b.sum().item()]
    halves = result.parts["rel_in_batch"] + result.parts["rel_exchanged"]
    assert halves.item() / 2 == pytest.approx(expected["rel"], abs=1e-9)


def test_published_weights_are_the_defaults_and_relations_may_wait():
    output, ids = random_output(4)
    result, waiting = UnifiedLoss()(output, ids), UnifiedLoss(relation_weight=0.0)(output, ids)
    parts = result.parts
    expected = parts["sent"] + 0.5 * (parts["comp"] + parts["obj"] + parts["attr"])
    torch.testing.assert_close(waiting.total, expected)
    torch.testing.assert_close(result.total, expected + parts["rel"])
    assert parts["rel"] > 0
    assert not any(part.requires_grad for part in parts.values())


VECTORS, KINDS = ("images_bKD", "regions_bND", "sentences_bD", "composed_bD"), ("objects", "pairs", "triples")


def differentiable(output: UnifiedOutput) -> list[torch.Tensor]:
    tensors = [getattr(output, name) for name in VECTORS] + [getattr(output, name).vectors_MVD for name in KINDS]
    return [tensor.clone().requires_grad_() for tensor in tensors]


def rebuilt(output: UnifiedOutput, tensors: tuple[torch.Tensor, ...]) -> UnifiedOutput:
    owners = [getattr(output, name).owners_M for name in KINDS]
    kinds = map(ComponentVectors, tensors[len(VECTORS) :], owners)
    return replace(output, **dict(zip(VECTORS, tensors, strict=False)), **dict(zip(KINDS, kinds, strict=True)))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_gradients(seed: int):
    output, ids = random_output(seed, images=3, counts=(3, 2, 3), dim=3)
    tensors = differentiable(output)
    loss = UnifiedLoss(margin=0.5)
    assert torch.autograd.gradcheck(lambda *x: loss(rebuilt(output, x), ids).total, tensors)


@pytest.mark.parametrize("counts", [(0, 0, 0), (3, 0, 2), (0, 2, 0), (0, 0, 1)])
def test_kinds_that_a_batch_lacks_count_nothing_and_break_nothing(counts: tuple[int, int, int]):
    output, ids = random_output(5, counts=counts)
    output = replace(output, has_components_b=torch.zeros(5, dtype=torch.bool), composed_bD=0 * output.composed_bD)
    tensors = differentiable(output)
    result = UnifiedLoss()(rebuilt(output, tuple(tensors)), ids)
    result.total.backward()
    for name, count in zip(("obj", "attr", "rel"), counts, strict=True):
        assert (result.parts[name] > 0).item() == (count > 0)
    assert result.parts["comp"] == 0
    assert all(tensor.grad is None or tensor.grad.isfinite().all() for tensor in tensors)
    assert tensors[3].grad.eq(0).all()


def test_the_whole_loss_stays_in_float32_under_autocast():
    output, ids = random_output(8)
    output = rebuilt(output, tuple(tensor.float() for tensor in differentiable(output)))
    expected = UnifiedLoss()(output, ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = UnifiedLoss()(output, ids)
    assert found.total.dtype == torch.float32
    torch.testing.assert_close(found.total, expected.total, atol=0, rtol=0)
    torch.testing.assert_close(found.parts, expected.parts, atol=0, rtol=0)


def one_triple_each(numbers: list[int], true: list[list[int]]) -> UnifiedOutput:
    """Two images, each with a caption of one triple: those are perpendicular, and match the other image."""
    output, _ = random_output(1, images=2, counts=(1, 1, 2), dim=2)
    axes = torch.eye(2, dtype=torch.float64)
    vectors = torch.stack([axes.flip(0), -axes], dim=1)  # each triple, and one negative that is far from its image
    return replace(
        output,
        images_bKD=axes.unsqueeze(1),
        triples=ComponentVectors(vectors, torch.arange(2)),
        triple_numbers_T=torch.tensor(numbers),
        true_triples_bX=torch.tensor(true),
    )


@pytest.mark.parametrize(
    ("numbers", "true", "expected"),
    [
        ([0, 1], [[0, -1], [1, -1]], 2 * 1.2),  # both are negatives of each other's image
        ([0, 0], [[0, -1], [0, -1]], 0.0),  # the same triple
        ([0, 1], [[0, 1], [1, -1]], 1.2),  # another caption of the first image has the second triple
        ([0, 1], [[0, 1], [1, 0]], 0.0),
    ],
)
def test_triples_that_are_true_of_an_image_are_no_negatives(numbers, true, expected):
    """Footnote 2: a negative is in none of the captions of the image. The images differ."""
    result = UnifiedLoss()(one_triple_each(numbers, true), torch.tensor([5, 6]))
    assert result.parts["rel_in_batch"].item() == pytest.approx(expected / 2)


def collapsed(size: int) -> UnifiedOutput:
    """A batch in which all vectors are equal, but for a little noise that decides nothing."""
    output, _ = random_output(2, images=size, counts=(2 * size, size, size), dim=6)
    centre = units(1, 6, generator=torch.Generator().manual_seed(1))
    tensors = [
        torch.nn.functional.normalize(centre + 1e-4 * tensor.detach(), dim=-1).requires_grad_()
        for tensor in differentiable(output)
    ]
    return replace(
        rebuilt(output, tuple(tensors)),
        triple_numbers_T=torch.arange(size),
        true_triples_bX=output.triples.owners_M.new_full((size, 1), -1),
        has_components_b=torch.ones(size, dtype=torch.bool),
        region_mask_bN=torch.ones(size, 6, dtype=torch.bool),
    )


@pytest.mark.parametrize("negatives", ["all", "hardest"])
@pytest.mark.parametrize("size", [4, 64])
def test_the_weights_of_equation_4_hold_while_all_negatives_count(negatives: str, size: int):
    """Each of the 2 B hinges pulls with the weight of one negative, however many there are; objects pull once."""
    output, ids = collapsed(size), torch.arange(size)
    result = UnifiedLoss(negatives=negatives)(output, ids)
    result.total.backward()
    for name, level in {"sent": 0.4, "comp": 0.4, "obj": 0.2, "attr": 0.2, "rel": 0.2}.items():
        assert result.parts[name].item() == pytest.approx(level, abs=1e-2)
    # A hinge moves its own text and negatives of the same weight: 2 / B each.
    assert output.sentences_bD.grad.norm(dim=1).sum() <= 4
    assert output.composed_bD.grad.norm(dim=1).sum() <= 0.5 * 4

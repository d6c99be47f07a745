"""Captions combined from sentence and components, against the formula in plain floats."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vse_core.encoders.components import combine


def unit(*shape: int, seed: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


@settings(max_examples=40)
@given(captions=st.integers(1, 6), alpha=st.floats(0, 1), seed=st.integers(0, 99))
def test_combination_is_the_formula_s(captions: int, alpha: float, seed: int):
    sentences, components = unit(captions, 5, seed=seed), unit(captions, 5, seed=seed + 100)
    has = torch.rand(captions, generator=torch.Generator().manual_seed(seed)) < 0.5
    found = combine(sentences, components, has, alpha).tolist()
    for row, sentence, component, some in zip(
        found, sentences.tolist(), components.tolist(), has.tolist(), strict=True
    ):
        mixed = [alpha * s + (1 - alpha) * c for s, c in zip(sentence, component, strict=True)] if some else sentence
        length = math.sqrt(sum(value**2 for value in mixed))
        assert row == pytest.approx([value / length for value in mixed], abs=1e-5)


def test_the_ends_are_sentence_and_components():
    sentences, components, has = unit(4, 8, seed=0), unit(4, 8, seed=1), torch.tensor([True, True, False, True])
    assert torch.allclose(combine(sentences, components, has, 1.0), sentences)
    assert torch.allclose(combine(sentences, components, has, 0.0)[has], components[has])
    assert torch.equal(combine(sentences, components, has, 0.0)[2], sentences[2])


def test_missing_components_are_not_looked_at():
    components = torch.full((3, 8), float("nan"))
    sentences = unit(3, 8, seed=0)
    assert torch.equal(combine(sentences, components, torch.zeros(3, dtype=torch.bool), 0.3), sentences)

"""Similarities within images against plain loops, and the densities against what they were given."""

from __future__ import annotations

import pytest
import torch

from vse_core.evaluation.views import caption_similarities, plot_caption_similarity


def test_pairs_of_one_image_and_of_different_ones() -> None:
    texts = torch.randn(11, 6, generator=torch.Generator().manual_seed(0))
    texts = texts / texts.norm(dim=1, keepdim=True)
    images = [0, 0, 0, 1, 2, 2, 3, 3, 3, 3, 4]
    same, other = caption_similarities(texts, torch.tensor(images))
    naive = [
        float(texts[one] @ texts[two])
        for one in range(len(images))
        for two in range(one + 1, len(images))
        if images[one] == images[two]
    ]
    assert sorted(same.tolist()) == pytest.approx(sorted(naive), abs=1e-6)
    naive = [float(texts[one] @ texts[(one + 5) % 11]) for one in range(11) if images[one] != images[(one + 5) % 11]]
    assert other.tolist() == pytest.approx(naive, abs=1e-6)


def test_densities_are_shares_of_the_pairs_and_named_with_their_means() -> None:
    same, other = torch.tensor([0.5, 0.5, 0.9, 0.1]), torch.tensor([-0.2, 0.0])
    (axes,) = plot_caption_similarity(same, other, "Captions of dev").axes
    filled = [patch for patch in axes.patches if hasattr(patch, "get_height")]
    assert sum(patch.get_height() for patch in filled) == pytest.approx(100)
    (highest,) = [patch for patch in filled if patch.get_height() == pytest.approx(50)]
    assert highest.get_x() <= 0.5 <= highest.get_x() + highest.get_width() + 1e-6
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert sorted(names) == ["of different images: mean -0.10, 2 pairs", "of one image: mean 0.50, 4 pairs"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("cosine of two captions", "pairs (%)")
    with pytest.raises(ValueError, match="no image has two captions"):
        plot_caption_similarity(torch.tensor([]), other, "x")

"""A model that begins with the weights of another one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vse_core.models import Model, build_model, start_from

TOWERS: dict[str, Any] = {
    "feature_dim": 6,
    "embed_dim": 8,
    "image": {"pooling": {"name": "gpo"}, "mlp": True},
    "text": {"pooling": {"name": "gpo"}, "word_dim": 5},
}
UNIFIED: dict[str, Any] = {
    "feature_dim": 6,
    "embed_dim": 8,
    "image": {"name": "regions", "pooling": {"name": "mean"}},
    "text": {"name": "components", "word_dim": 5, "modifier_dim": 3},
}

LEVELS: dict[str, Any] = {
    "feature_dim": 6,
    "embed_dim": 8,
    "image": {"name": "levels", "pooling": {"name": "mean"}},
    "text": {"name": "role_graphs", "pooling": {"name": "mean"}, "word_dim": 5},
}
# A network of pixels that has a table of positions, 17 rows of it.
CLIP_TOWER: dict[str, Any] = {
    "feature_dim": None,
    "embed_dim": 8,
    "image": {
        "name": "backbone",
        "pooling": {"name": "mean"},
        "architecture": {
            "model_type": "clip_vision_model",
            "hidden_size": 8,
            "intermediate_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
        },
        "image_size": 32,
        "pixels": "imagenet",
    },
    "text": {"pooling": {"name": "mean"}, "word_dim": 5},
}


def built(specification: dict[str, Any], words: int, seed: int) -> Model:
    torch.manual_seed(seed)
    return build_model(vocabulary_size=words, **specification)


@pytest.mark.parametrize("specification", [TOWERS, UNIFIED], ids=["two towers", "unified"])
def test_words_that_both_know_keep_their_vectors(specification: dict[str, Any]) -> None:
    """Oracle: row by row, from the states before."""
    old, new = built(specification, 7, 0), built(specification, 9, 1)
    before, weights = {name: value.clone() for name, value in new.state_dict().items()}, old.state_dict()
    own, other = [0, 1, 4, 8], [0, 1, 6, 3]
    start_from(new, weights, (torch.tensor(own), torch.tensor(other)))
    differing = [name for name, value in weights.items() if value.shape != before[name].shape]
    assert len(differing) == (1 if specification is TOWERS else 2)
    for name, value in new.state_dict().items():
        if name not in differing:
            torch.testing.assert_close(value, weights[name], rtol=0, atol=0)
            continue
        for row in range(9):
            expected = weights[name][other[own.index(row)]] if row in own else before[name][row]
            torch.testing.assert_close(value[row], expected, rtol=0, atol=0)


def test_words_that_have_changed_places() -> None:
    """As many words as before, and another order: the shapes do not tell."""
    old, new = built(TOWERS, 4, 0), built(TOWERS, 4, 1)
    start_from(new, old.state_dict(), (torch.tensor([0, 1, 2, 3]), torch.tensor([0, 1, 3, 2])))
    name = "text_encoder.embed.weight"
    torch.testing.assert_close(new.state_dict()[name], old.state_dict()[name][[0, 1, 3, 2]], rtol=0, atol=0)


@pytest.mark.parametrize("vocabulary", [12, 40], ids=["fewer words than rows", "more words than rows"])
@pytest.mark.parametrize(
    ("specification", "words", "other"),
    [
        (LEVELS, "text_encoder.words.embed.weight", "text_encoder.roles.weight"),
        (
            CLIP_TOWER,
            "text_encoder.embed.weight",
            "image_encoder.backbone.embeddings.position_embedding.weight",
        ),
    ],
    ids=["roles", "positions"],
)
def test_tables_of_other_things_than_words_are_taken_as_they_are(
    specification: dict[str, Any], words: str, other: str, vocabulary: int
) -> None:
    old, new = built(specification, vocabulary, 0), built(specification, vocabulary, 1)
    weights, turned = old.state_dict(), torch.arange(vocabulary).flip(0)
    start_from(new, weights, (torch.arange(vocabulary), turned))
    torch.testing.assert_close(new.state_dict()[other], weights[other], rtol=0, atol=0)
    torch.testing.assert_close(new.state_dict()[words], weights[words][turned], rtol=0, atol=0)


def test_the_same_ids_take_everything() -> None:
    old, new = built(TOWERS, 7, 0), built(TOWERS, 7, 1)
    start_from(new, old.state_dict())
    for name, value in new.state_dict().items():
        torch.testing.assert_close(value, old.state_dict()[name], rtol=0, atol=0)


@pytest.mark.parametrize("change", [{"embed_dim": 4}, {"text": {"pooling": {"name": "gpo"}, "word_dim": 4}}])
def test_a_model_that_is_built_otherwise_is_refused(change: dict[str, Any]) -> None:
    old, new = built({**TOWERS, **change}, 7, 0), built(TOWERS, 7, 1)
    with pytest.raises(ValueError, match="do not fit the model"):
        start_from(new, old.state_dict(), (torch.arange(7), torch.arange(7)))

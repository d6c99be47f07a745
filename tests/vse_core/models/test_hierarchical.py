"""HGR-infinity against loops in plain Python; padding, graphs and gradients."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.vse_core.models.levels_oracle import all_levels
from tests.vse_core.training.tiny_levels import levels_batch, tiny_levels
from vse_core.evaluation.members import compare as similarities
from vse_core.losses.hierarchical import (
    HierarchicalLoss,
    TextLevels,
    VideoLevels,
    level_similarities,
    phrase_similarities,
)
from vse_core.models import build_model
from vse_core.models.hierarchical import HierarchicalModel, RoleGraphs

LEVELS: dict[str, Any] = {"name": "levels", "pooling": {"name": "gpo"}}
ROLE_GRAPHS: dict[str, Any] = {"name": "role_graphs", "pooling": {"name": "gpo"}}


def batch(size: int = 5, seed: int = 0) -> list[Any]:
    inputs, _ = levels_batch(size, seed)
    inputs[0] = inputs[0].double()
    return inputs


def model_of(layers: int = 1) -> HierarchicalModel:
    model = tiny_levels(layers=layers).double().eval()
    with torch.no_grad():  # a layer norm as it begins would hide a wrong scale or shift
        for layer in model.text_encoder.layers:
            layer.norm.weight.uniform_(0.5, 1.5)
            layer.norm.bias.normal_(0, 0.3)
    return model


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("seed", [0, 1])
def test_all_levels_are_those_of_plain_loops(layers: int, seed: int) -> None:
    model, inputs = model_of(layers), batch(seed=seed)
    videos, texts = model(*inputs)
    expected_BC3 = torch.tensor(all_levels(model, inputs), dtype=torch.float64)
    torch.testing.assert_close(level_similarities(videos, texts).permute(1, 2, 0), expected_BC3, atol=1e-6, rtol=0)
    torch.testing.assert_close(similarities(videos, texts), expected_BC3.mean(dim=2), atol=1e-6, rtol=0)
    # Caption 1 has neither actions nor entities: by those it is like no video.
    assert not level_similarities(videos, texts)[1:, :, 1].any()


def test_the_released_shares_of_dropout_are_the_defaults() -> None:
    model = build_model(6, 20, 8, LEVELS, ROLE_GRAPHS)
    assert model.image_encoder.dropout.p == model.text_encoder.words.dropout.p == 0.2
    assert [layer.dropout.p for layer in model.text_encoder.layers] == [0.5]


def test_the_gru_begins_orthogonal() -> None:
    for name, weight in model_of().text_encoder.words.rnn.named_parameters():
        if name.startswith("weight"):
            products = weight.T @ weight
            torch.testing.assert_close(products, torch.eye(len(products), dtype=weight.dtype), atol=1e-6, rtol=0)
        else:
            assert not weight.any()


def test_words_may_begin_with_given_vectors() -> None:
    encoder = tiny_levels().text_encoder
    encoder.set_word_vectors(torch.tensor([3, 5]), torch.arange(10.0).view(2, 5))
    assert encoder.words.embed.weight[[3, 5]].flatten().tolist() == list(range(10))


def test_padding_changes_nothing() -> None:
    """More frames, tokens, places for actions and entities than there are, with anything in them but words."""
    model, (features, frames, tokens, lengths, graphs) = model_of(2), batch()
    expected = level_similarities(*model(features, frames, tokens, lengths, graphs))
    wider = RoleGraphs(
        actions_CAL=torch.nn.functional.pad(graphs.actions_CAL, (0, 2, 0, 3)),
        entities_CEL=torch.nn.functional.pad(graphs.entities_CEL, (0, 2, 0, 1)),
        roles_CE=torch.nn.functional.pad(graphs.roles_CE, (0, 1), value=7),
        linked_CAE=torch.nn.functional.pad(graphs.linked_CAE, (0, 1, 0, 3), value=True),
    )
    features = torch.cat([features, torch.full((5, 2, 6), 1e4, dtype=torch.float64)], dim=1)
    tokens = torch.cat([tokens, torch.full((5, 2), 19)], dim=1)
    found = level_similarities(*model(features, frames, tokens, lengths, wider))
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


def test_a_pair_does_not_depend_on_its_batch() -> None:
    model, inputs = model_of(), batch()
    videos, texts = model(*inputs)
    whole = similarities(videos, texts)
    features, frames, tokens, lengths, graphs = inputs
    for row in range(5):
        alone = RoleGraphs(**{name: getattr(graphs, name)[[row]] for name in RoleGraphs.__dataclass_fields__})
        one = model(features[[row]], frames[[row]], tokens[[row]], lengths[[row]], alone)
        torch.testing.assert_close(similarities(*one)[0, 0], whole[row, row])
        torch.testing.assert_close(
            similarities(videos[row : row + 1], texts[torch.tensor([row])]), whole[[row]][:, [row]]
        )


def test_order_of_frames_and_of_entities_does_not_matter() -> None:
    model, (features, frames, tokens, lengths, graphs) = model_of(), batch()
    expected = similarities(*model(features, frames, tokens, lengths, graphs))
    backwards = [3, 2, 1, 0]
    turned = replace(
        graphs,
        entities_CEL=graphs.entities_CEL[:, backwards],
        roles_CE=graphs.roles_CE[:, backwards],
        linked_CAE=graphs.linked_CAE[:, :, backwards],
    )
    reversed_frames = features.clone()
    for video, count in enumerate(frames.tolist()):
        reversed_frames[video, :count] = features[video, :count].flip(0)
    found = similarities(*model(reversed_frames, frames, tokens, lengths, turned))
    torch.testing.assert_close(found, expected)


def test_roles_and_links_count() -> None:
    model, (features, frames, tokens, lengths, graphs) = model_of(), batch()
    expected = similarities(*model(features, frames, tokens, lengths, graphs))
    for changed in (
        replace(graphs, roles_CE=graphs.roles_CE % 15 + 1),
        replace(graphs, linked_CAE=~graphs.linked_CAE),
    ):
        assert not torch.allclose(similarities(*model(features, frames, tokens, lengths, changed)), expected)


def test_words_beyond_the_end_are_refused() -> None:
    model, (features, frames, tokens, lengths, graphs) = model_of(), batch()
    lengths[3], graphs.entities_CEL[3] = 2, False
    graphs.actions_CAL[3] = False
    graphs.entities_CEL[3, 0, 4] = True
    with pytest.raises(ValueError, match="an entity of caption 3 of the batch has words beyond its end"):
        model(features, frames, tokens, lengths, graphs)


def test_gradients_are_right_where_there_is_nothing_and_where_frames_cancel_out() -> None:
    """Numerically, with captions without phrases, a video of one frame, and cosines on both sides of zero."""
    generator = torch.Generator().manual_seed(3)
    frames = torch.randn(3, 4, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    phrases = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    frame_mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0]], dtype=torch.bool)
    phrase_mask = torch.tensor([[1, 0, 1], [0, 0, 0]], dtype=torch.bool)

    def work(frames: torch.Tensor, phrases: torch.Tensor) -> torch.Tensor:
        return phrase_similarities(frames, frame_mask, torch.nn.functional.normalize(phrases, dim=-1), phrase_mask)

    assert torch.autograd.gradcheck(work, (frames, phrases))
    opposite = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]], requires_grad=True)
    found = phrase_similarities(
        opposite, torch.ones(1, 2, dtype=torch.bool), torch.tensor([[[0.0, 1.0]]]), torch.ones(1, 1, dtype=torch.bool)
    )
    found.sum().backward()
    assert found.item() == 0
    assert opposite.grad is not None
    assert opposite.grad.isfinite().all()


def test_gradients_reach_every_parameter_and_are_finite() -> None:
    model = model_of(2).train()
    inputs, ids = batch(), torch.arange(5)
    HierarchicalLoss().from_local_batch(model(*inputs), ids, [5]).total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert all(parameter.grad.any() for name, parameter in model.named_parameters() if "key.bias" not in name)


@pytest.mark.parametrize("mask", [False, True])
def test_the_loss_is_the_triplet_loss_of_the_mean_of_the_levels(mask: bool) -> None:
    model, inputs, ids = model_of(), batch(), torch.tensor([0, 1, 0, 2, 3])
    videos, texts = model(*inputs)
    sims = similarities(videos, texts).tolist()
    rivals = [[j for j in range(5) if j != i and not (mask and ids[i] == ids[j])] for i in range(5)]
    expected = sum(
        max(max(0.0, 0.2 + sims[i][j] - sims[i][i]) for j in rivals[i])
        + max(max(0.0, 0.2 + sims[j][i] - sims[i][i]) for j in rivals[i])
        for i in range(5)
    )
    result = HierarchicalLoss(mask_same_image=mask)(videos, texts, ids)
    assert result.total.item() == pytest.approx(expected / 5)
    assert result.parts["positive_similarity"].item() == pytest.approx(sum(sims[i][i] for i in range(5)) / 5)
    levels = level_similarities(videos, texts).diagonal(dim1=1, dim2=2).mean(dim=1)
    assert [result.parts[f"{name}_similarity"].item() for name in ("event", "action", "entity")] == pytest.approx(
        levels.tolist()
    )


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ValueError, match="text encoder 'role_graphs' has no option 'directions'"):
        build_model(6, 20, 8, LEVELS, ROLE_GRAPHS | {"directions": 1})


def test_levels_are_taken_apart_by_rows() -> None:
    videos = VideoLevels(torch.rand(3, 2), torch.rand(3, 4, 2), torch.rand(3, 4, 2), torch.ones(3, 4, dtype=torch.bool))
    texts = TextLevels(
        torch.rand(3, 2),
        torch.rand(3, 1, 2),
        torch.ones(3, 1, dtype=torch.bool),
        torch.rand(3, 2, 2),
        torch.ones(3, 2, dtype=torch.bool),
    )
    assert torch.equal(videos[1:].entity_frames_bND, videos.entity_frames_bND[1:])
    assert torch.equal(texts[torch.tensor([2])].entities_cED, texts.entities_cED[[2]])

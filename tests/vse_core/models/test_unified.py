"""The unified model: what a caption's vector is made of, and what training is given."""

from dataclasses import fields, replace

import pytest
import torch

from tests.vse_core.training.tiny_unified import (
    WORDS,
    random_components,
    random_pairs,
    selected,
    tiny_unified,
    unified_batch,
)
from vse_core.encoders.components import combine
from vse_core.models import build_model
from vse_core.models.unified import Components
from vse_core.outputs import embed

GENERATOR_SEED = 3


def captions(without: tuple[int, ...] = (2,)) -> tuple[torch.Tensor, torch.Tensor, Components]:
    generator = torch.Generator().manual_seed(GENERATOR_SEED)
    _, _, tokens, lengths = random_pairs(6, generator)
    return tokens, lengths, random_components(6, generator, without)


def test_a_caption_is_its_sentence_and_its_components() -> None:
    model = tiny_unified(alpha=0.6).double()
    tokens, lengths, components = captions()
    found = model.encode_texts(tokens, lengths, components)
    sentences = model.text_encoder.encode_sentences(tokens, lengths)
    objects = model.text_encoder.encode_phrases(components.objects_O.unsqueeze(-1))
    pairs = model.text_encoder.encode_phrases(components.pairs_A2)
    triples = model.text_encoder.encode_phrases(components.triples_TL)
    for caption in range(6):
        own = [objects[components.object_owner_O == caption], pairs[components.pair_owner_A == caption]]
        total = torch.cat([*own, triples[components.triple_owner_T == caption]]).sum(dim=0)
        if caption == 2:
            assert torch.equal(found[caption], sentences[caption])
            continue
        combined = 0.6 * sentences[caption] + 0.4 * total / total.norm()
        torch.testing.assert_close(found[caption], combined / combined.norm(), atol=1e-7, rtol=0)


def test_the_share_of_the_sentence_may_be_changed_afterwards() -> None:
    model = tiny_unified(alpha=0.3)
    tokens, lengths, components = captions()
    before = model.encode_texts(tokens, lengths, components)
    model.alpha = 1.0
    sentences = model.text_encoder.encode_sentences(tokens, lengths)
    torch.testing.assert_close(model.encode_texts(tokens, lengths, components), sentences)
    assert not torch.allclose(before, sentences)
    assert torch.equal(model.encode_texts(tokens, lengths), sentences)
    assert tiny_unified().alpha == 0.75


def bare(components: Components) -> Components:
    return replace(components, object_negatives_ON=None, pair_negatives_AN2=None, triple_negatives_TNL=None)


def test_the_order_of_components_and_their_negatives_do_not_matter() -> None:
    model = tiny_unified().double()
    tokens, lengths, components = captions()
    expected = model.encode_texts(tokens, lengths, components)
    counts = {"object": components.objects_O, "pair": components.pairs_A2, "triple": components.triples_TL}
    shuffled = selected(components, {kind: torch.randperm(len(rows)) for kind, rows in counts.items()})
    torch.testing.assert_close(model.encode_texts(tokens, lengths, shuffled), expected)
    torch.testing.assert_close(model.encode_texts(tokens, lengths, bare(components)), expected)


def test_captions_without_any_components() -> None:
    model = tiny_unified()
    tokens, lengths, components = captions(without=tuple(range(6)))
    assert len(components.objects_O) == 0
    assert torch.equal(
        model.encode_texts(tokens, lengths, components), model.text_encoder.encode_sentences(tokens, lengths)
    )


def test_training_is_given_what_inference_gives() -> None:
    model = tiny_unified().double()
    inputs, _ = unified_batch(6, seed=1)
    inputs[0] = inputs[0].double()
    images, elements, tokens, lengths, components = inputs
    output = model(*inputs)
    torch.testing.assert_close(output.images_bKD, model.encode_images(images, elements))
    torch.testing.assert_close(
        (output.regions_bND, output.region_mask_bN),
        model.image_encoder.images_and_regions(images, elements)[1:],
        check_dtype=True,
    )
    torch.testing.assert_close(output.sentences_bD, model.text_encoder.encode_sentences(tokens, lengths))
    torch.testing.assert_close(
        output.objects.own, model.text_encoder.encode_phrases(components.objects_O.unsqueeze(-1))
    )
    torch.testing.assert_close(output.pairs.own, model.text_encoder.encode_phrases(components.pairs_A2))
    torch.testing.assert_close(output.triples.own, model.text_encoder.encode_phrases(components.triples_TL))
    for kind, negatives in (
        (output.objects, components.object_negatives_ON.unsqueeze(-1)),
        (output.pairs, components.pair_negatives_AN2),
        (output.triples, components.triple_negatives_TNL),
    ):
        torch.testing.assert_close(kind.vectors_MVD[:, 1:], model.text_encoder.encode_phrases(negatives))
        torch.testing.assert_close(kind.vectors_MVD.norm(dim=-1), torch.ones(kind.vectors_MVD.shape[:2]).double())
    model.alpha = 0.0
    composed = model.encode_texts(tokens, lengths, components)[output.has_components_b]
    torch.testing.assert_close(output.composed_bD[output.has_components_b], composed)
    assert output.composed_bD[~output.has_components_b].eq(0).all()


@pytest.mark.parametrize("missing", [(), ("triple",), ("pair",), ("object", "pair", "triple")])
@pytest.mark.parametrize("text", [{}, {"pooling": {"name": "gpo"}}])
def test_every_parameter_has_a_gradient_whatever_components_are_missing(missing: tuple[str, ...], text: dict) -> None:
    """DistributedDataParallel waits for ever for a parameter that takes no part."""
    model = tiny_unified(**text)
    inputs, _ = unified_batch(6, seed=1)
    components = inputs[4]
    owners = {
        "object": components.object_owner_O,
        "pair": components.pair_owner_A,
        "triple": components.triple_owner_T,
    }
    kept = {kind: torch.full(rows.shape, kind not in missing) for kind, rows in owners.items()}
    output = model(*inputs[:4], selected(components, kept))
    (output.sentences_bD.sum() + output.images_bKD.sum() + output.composed_bD.sum()).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_evaluation_sees_the_interface_of_two_towers() -> None:
    model = tiny_unified().eval()
    features, elements, tokens, lengths = random_pairs(6, torch.Generator().manual_seed(0))
    assert embed(model, model.encode_images, [(features, elements)]).shape == (6, 1, 8)
    assert embed(model, model.encode_texts, [(tokens, lengths)]).shape == (6, 8)


def test_halves_of_all_batches_mix_into_the_captions() -> None:
    model = tiny_unified().eval()
    inputs, _ = unified_batch(6, seed=1)
    batches = [tuple(inputs[2:])] * 2
    sentences_CD, composed_CKD, has_CK = embed(model, model.encode_halves, batches)
    assert (len(sentences_CD), composed_CKD.shape, has_CK.shape) == (12, (12, 4, 8), (12, 4))
    for model.alpha in (0.0, 0.3, 1.0):
        mixed = combine(sentences_CD, composed_CKD[:, 0], has_CK[:, 0], model.alpha)
        torch.testing.assert_close(mixed, embed(model, model.encode_texts, batches))


@torch.no_grad()
def test_components_of_one_kind_stand_alone() -> None:
    """UniVSE, table 2: only objects, only attributes, only relations make u_comp."""
    model = tiny_unified().eval()
    inputs, _ = unified_batch(6, seed=1)
    tokens_CL, lengths_C, components = inputs[2:]
    _, composed_CKD, has_CK = model.encode_halves(tokens_CL, lengths_C, components)
    kinds = [
        (model.text_encoder.encode_phrases(components.objects_O.unsqueeze(-1)), components.object_owner_O),
        (model.text_encoder.encode_phrases(components.pairs_A2), components.pair_owner_A),
        (model.text_encoder.encode_phrases(components.triples_TL), components.triple_owner_T),
    ]
    for kind, (vectors, owners) in enumerate(kinds, start=1):
        for caption in range(6):
            own = [vector for vector, owner in zip(vectors, owners.tolist(), strict=True) if owner == caption]
            assert has_CK[caption, kind] == bool(own)
            expected = torch.nn.functional.normalize(sum(own, torch.zeros(8)), dim=0)
            torch.testing.assert_close(composed_CKD[caption, kind], expected)


def test_components_move_as_one() -> None:
    components = random_components(6, torch.Generator().manual_seed(0))
    moved = components.to("meta")
    assert all(getattr(moved, field.name).device.type == "meta" for field in fields(moved))
    copied = bare(components).to("cpu")
    assert copied.object_negatives_ON is None
    assert torch.equal(copied.triples_TL, components.triples_TL)


def test_published_sizes_are_the_defaults() -> None:
    model = build_model(5, WORDS, 8, {"name": "regions", "pooling": {"name": "mean"}}, {"name": "components"})
    words = model.text_encoder.objects
    assert (words.basic.embedding_dim, words.modifier.embedding_dim) == (300, 100)


@pytest.mark.parametrize(
    ("side", "options", "message"),
    [
        ("image", {"mlp": True}, "'regions' has no option 'mlp'"),
        ("text", {"word_dims": 3}, "did you mean 'word_dim'"),
        ("image", {"pooling": {"name": "kmaks"}}, "did you mean 'kmax'"),
    ],
)
def test_unknown_options_are_refused(side: str, options: dict, message: str) -> None:
    sides = {"image": {"name": "regions", "pooling": {"name": "mean"}}, "text": {"name": "components"}}
    with pytest.raises(ValueError, match=message):
        build_model(5, WORDS, 8, **sides | {side: sides[side] | options})

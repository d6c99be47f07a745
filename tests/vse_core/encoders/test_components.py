"""Words, pairs, triples and sentences of UniVSE against its equations, written with loops over plain numbers."""

import math

import pytest
import torch
from torch import Tensor

from vse_core.encoders.components import ComponentEncoder, NeuralCombiner, ObjectEncoder, compose
from vse_core.encoders.text import BiGRUEncoder
from vse_core.pooling import build_pooling

Vector = list[float]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def norm(vector: Vector) -> Vector:
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector]


def affine(weight: list[Vector], bias: Vector, vector: Vector) -> Vector:
    return [sum(w * x for w, x in zip(row, vector, strict=True)) + b for row, b in zip(weight, bias, strict=True)]


def phi(encoder: ObjectEncoder, modifier: int, noun: int) -> Vector:
    word = encoder.basic.weight[noun].tolist() + encoder.modifier.weight[modifier].tolist()
    weight, bias = encoder.fusion.weight.tolist(), encoder.fusion.bias.tolist()
    dim = len(bias) // 2
    gate, value = affine(weight[:dim], bias[:dim], word), affine(weight[dim:], bias[dim:], word)
    return norm([sigmoid(g) * math.tanh(v) for g, v in zip(gate, value, strict=True)])


def psi(combiner: NeuralCombiner, words: list[Vector]) -> Vector:
    """Cho et al. 2014 in PyTorch's form, one word and one dimension after the other."""
    gru = combiner.gru
    dim = gru.hidden_size
    state = [0.0] * dim
    for word in words:
        given = affine(gru.weight_ih_l0.tolist(), gru.bias_ih_l0.tolist(), word)
        kept = affine(gru.weight_hh_l0.tolist(), gru.bias_hh_l0.tolist(), state)
        new_state = []
        for d in range(dim):
            reset = sigmoid(given[d] + kept[d])
            update = sigmoid(given[dim + d] + kept[dim + d])
            new = math.tanh(given[2 * dim + d] + reset * kept[2 * dim + d])
            new_state.append((1 - update) * new + update * state[d])
        state = new_state
    return norm(state)


def make_encoder() -> ComponentEncoder:
    torch.manual_seed(0)
    return ComponentEncoder(11, 6, word_dim=4, modifier_dim=3).double()


def assert_close(found: Tensor, expected: list[Vector]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=found.dtype), atol=1e-7, rtol=0)


def test_nouns_and_pairs_are_the_gated_fusion_of_their_embeddings() -> None:
    encoder = make_encoder()
    nouns, pairs = torch.tensor([3, 7, 3]), torch.tensor([[1, 3], [9, 7], [3, 1]])
    assert_close(encoder.encode_phrases(nouns.unsqueeze(-1)), [phi(encoder.objects, n, n) for n in nouns.tolist()])
    assert_close(encoder.encode_phrases(pairs), [phi(encoder.objects, a, n) for a, n in pairs.tolist()])


def test_triples_and_sentences_are_read_by_one_gru() -> None:
    encoder = make_encoder()
    # Beginnings that triples share and a word in several places, one triple twice.
    triples = [[3, 1, 4], [3, 1, 5], [3, 2, 4], [4, 1, 3], [3, 1, 4], [4, 4, 4]]
    expected = [psi(encoder.combiner, [phi(encoder.objects, w, w) for w in triple]) for triple in triples]
    assert_close(encoder.encode_phrases(torch.tensor(triples)), expected)
    # Relations of several words, filled up; one triple is the beginning of another.
    triples = [[3, 1, 4, -1, -1], [3, 1, 4, 5, -1], [3, 1, 4, 5, 0], [0, 1, 4, -1, -1], [3, 2, 2, 2, 2]]
    expected = [psi(encoder.combiner, [phi(encoder.objects, w, w) for w in row if w >= 0]) for row in triples]
    assert_close(encoder.encode_phrases(torch.tensor(triples)), expected)
    assert_close(encoder.encode_phrases(torch.tensor(triples[:1])[:, :3]), expected[:1])
    tokens, lengths = torch.tensor([[3, 1, 4, 0], [7, 8, 9, 10], [2, 0, 0, 0]]), torch.tensor([3, 4, 1])
    sentences = [row[:length] for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True)]
    expected = [psi(encoder.combiner, [phi(encoder.objects, w, w) for w in sentence]) for sentence in sentences]
    assert_close(encoder.encode_sentences(tokens, lengths), expected)


def test_everything_at_once_is_each_by_itself() -> None:
    encoder, generator = make_encoder(), torch.Generator().manual_seed(1)
    tokens, lengths = torch.randint(0, 11, (4, 5), generator=generator), torch.tensor([5, 1, 3, 2])
    objects = torch.randint(0, 11, (6, 3), generator=generator)
    pairs = torch.randint(0, 11, (5, 3, 2), generator=generator)
    lengths_of_triples = torch.randint(3, 6, (7, 4, 1), generator=generator)
    triples = torch.randint(0, 11, (7, 4, 5), generator=generator)
    triples[torch.arange(5) >= lengths_of_triples] = -1
    found = encoder(tokens, lengths, objects, pairs, triples)
    expected = (
        encoder.encode_sentences(tokens, lengths),
        encoder.encode_phrases(objects.unsqueeze(-1)),
        encoder.encode_phrases(pairs),
        encoder.encode_phrases(triples),
    )
    torch.testing.assert_close(found, expected)
    assert [x.shape for x in found] == [(4, 6), (6, 3, 6), (5, 3, 6), (7, 4, 6)]
    # Triples are sentences of three to five words.
    as_sentences = encoder.encode_sentences(triples.view(-1, 5).clamp(min=0), lengths_of_triples.flatten())
    torch.testing.assert_close(found[3].view(-1, 6), as_sentences)


def test_sentences_may_be_read_by_a_bigru_and_aggregated() -> None:
    """As the encoder of VSE-infinity reads words, here encoded ones; components are read as ever."""
    torch.manual_seed(0)
    encoder = ComponentEncoder(11, 6, word_dim=4, modifier_dim=3, pooling=build_pooling("gpo", 6))
    bigru = BiGRUEncoder(11, 6, encoder.sentences.pooling, word_dim=6)
    bigru.rnn = encoder.sentences.gru
    with torch.no_grad():
        bigru.embed.weight[:] = encoder.encode_phrases(torch.arange(11).unsqueeze(-1))
    tokens, lengths = torch.tensor([[3, 1, 4, 0], [7, 8, 9, 10], [2, 0, 0, 0]]), torch.tensor([3, 4, 1])
    torch.testing.assert_close(encoder.encode_sentences(tokens, lengths), bigru(tokens, lengths))
    triples = torch.tensor([[3, 1, 4], [7, 8, 9]])
    expected = [psi(encoder.combiner, [phi(encoder.objects, w, w) for w in row]) for row in triples.tolist()]
    torch.testing.assert_close(encoder.encode_phrases(triples), torch.tensor(expected), atol=1e-5, rtol=0)


def test_gradients_of_shared_beginnings() -> None:
    torch.manual_seed(0)
    combiner = NeuralCombiner(3).double()
    words = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    phrases = torch.tensor([[0, 1, 2], [0, 1, 3], [0, 2, -1], [3, 1, 2], [0, 1, -1]])
    lengths = torch.tensor([3, 3, 2, 3, 2])
    assert torch.autograd.gradcheck(lambda x: combiner.phrases(x, phrases), words)
    weights = [torch.randn(5, 3, dtype=torch.float64) for _ in range(2)]
    for found, expected in zip(
        torch.autograd.grad((combiner.phrases(words, phrases) * weights[0]).sum(), [words, *combiner.parameters()]),
        torch.autograd.grad(
            (combiner.sentences(words[phrases.clamp(min=0)], lengths) * weights[0]).sum(),
            [words, *combiner.parameters()],
        ),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)


def test_padding_never_changes_a_sentence() -> None:
    encoder = make_encoder()
    tokens, lengths = torch.tensor([[3, 1, 4], [7, 5, 0]]), torch.tensor([3, 2])
    padded = torch.tensor([[3, 1, 4, 8, 9], [7, 5, 2, 8, 9]])
    torch.testing.assert_close(encoder.encode_sentences(padded, lengths), encoder.encode_sentences(tokens, lengths))


def test_no_components_at_all() -> None:
    encoder = make_encoder()
    empty = torch.zeros(0, 5, dtype=torch.long), torch.zeros(0, 5, 2, dtype=torch.long)
    triples = torch.zeros(0, 9, 3, dtype=torch.long)
    sentences, *rest = encoder(torch.tensor([[1, 2]]), torch.tensor([2]), *empty, triples)
    assert [x.shape for x in rest] == [(0, 5, 6), (0, 5, 6), (0, 9, 6)]
    # Part of the graph all the same: processes with and without components go backwards in step.
    assert all(x.requires_grad for x in rest)
    (sentences.sum() + sum(x.sum() for x in rest)).backward()
    assert all(parameter.grad.isfinite().all() for parameter in encoder.parameters())


def test_composition_is_the_unit_vector_of_the_sum() -> None:
    generator = torch.Generator().manual_seed(2)
    kinds = [torch.randn(count, 3, generator=generator, dtype=torch.float64) for count in (4, 2, 0)]
    owners = [torch.tensor([3, 0, 3, 0]), torch.tensor([0, 1]), torch.zeros(0, dtype=torch.long)]
    found, has = compose(4, kinds, owners)
    assert has.tolist() == [True, True, False, True]
    for caption in range(4):
        total = [0.0, 0.0, 0.0]
        for vectors, rows in zip(kinds, owners, strict=True):
            for vector, row in zip(vectors.tolist(), rows.tolist(), strict=True):
                if row == caption:
                    total = [a + b for a, b in zip(total, vector, strict=True)]
        assert found[caption].tolist() == pytest.approx(norm(total) if any(total) else total, abs=1e-7)


def test_gradients_of_the_composition_are_finite_without_components() -> None:
    vectors = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    owners = torch.tensor([1, 1, 3])
    assert torch.autograd.gradcheck(lambda x: compose(5, [x], [owners])[0], vectors)


def test_given_word_vectors() -> None:
    vectors = torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]])
    trained, fixed = (ComponentEncoder(5, 6, word_dim=4, modifier_dim=3, train_words=train) for train in (True, False))
    for encoder in (trained, fixed):
        encoder.set_word_vectors(torch.tensor([4, 1]), vectors)
        assert torch.equal(encoder.objects.basic.weight[[4, 1]], vectors)
        assert encoder.objects.modifier.weight.requires_grad
        assert 0 < encoder.objects.modifier.weight.abs().max() <= 0.1
    assert trained.objects.basic.weight.requires_grad
    assert 0 < trained.objects.basic.weight[[0, 2, 3]].abs().max() <= 0.1
    assert not fixed.objects.basic.weight.requires_grad
    assert fixed.objects.basic.weight[[0, 2, 3]].eq(0).all()
    with pytest.raises(ValueError, match="need vectors of the shape"):
        trained.set_word_vectors(torch.tensor([4]), vectors)


def test_in_half_precision_vectors_stay_in_float32() -> None:
    encoder = make_encoder().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        triples = encoder.encode_phrases(torch.tensor([[1, 2, 3], [1, 2, 4]]))
    assert triples.dtype == torch.float32
    torch.testing.assert_close(triples.norm(dim=-1), torch.ones(2))
    torch.testing.assert_close(triples, encoder.encode_phrases(torch.tensor([[1, 2, 3], [1, 2, 4]])), atol=3e-2, rtol=0)

"""Encoders against the written-out steps of the released code, one sample at a time."""

import pytest
import torch

from vse_core.encoders.image import FeatureEncoder, GlobalBatchNorm
from vse_core.encoders.text import BiGRUEncoder
from vse_core.pooling import build_pooling, build_views
from vse_core.similarity import unit_length


def test_region_encoder_step_by_step():
    torch.manual_seed(0)
    encoder = FeatureEncoder(5, 8, build_pooling("mean", 8)).eval()
    mlp = encoder.mlp
    mlp.norm.running_mean.normal_()
    mlp.norm.running_var.uniform_(0.5, 2)
    features, lengths = torch.randn(3, 4, 5), torch.tensor([4, 1, 3])
    for sample, length, found in zip(features, lengths.tolist(), encoder(features, lengths), strict=True):
        rows = sample[:length]
        hidden = rows @ mlp.hidden.weight.T + mlp.hidden.bias
        hidden = (hidden - mlp.norm.running_mean) / torch.sqrt(mlp.norm.running_var + 1e-5)
        branch = torch.relu(hidden) @ mlp.out.weight.T + mlp.out.bias
        pooled = (rows @ encoder.fc.weight.T + encoder.fc.bias + branch).mean(dim=0)
        torch.testing.assert_close(found[0], pooled / (pooled.norm() + 1e-8), atol=1e-6, rtol=1e-5)


def test_padding_never_changes_an_image_not_even_in_training():
    features, lengths = torch.randn(3, 4, 5), torch.tensor([4, 1, 3])
    padded = torch.cat([features, torch.full((3, 5, 5), 77.0)], dim=1)
    results = []
    for batch in (features, padded):
        torch.manual_seed(0)
        encoder = FeatureEncoder(5, 8, build_pooling("gpo", 8))
        results.append((encoder(batch, lengths), encoder.mlp.norm.running_var))
    torch.testing.assert_close(results[0], results[1])


def test_statistics_over_padded_rows_as_the_release_takes_them():
    torch.manual_seed(0)
    encoder = FeatureEncoder(5, 8, build_pooling("max", 8), norm_rows="padded")
    features, lengths = torch.randn(3, 4, 5), torch.tensor([4, 1, 3])
    zeroed = features.clone()
    for sample, length in enumerate(lengths.tolist()):
        zeroed[sample, length:] = 0
    mlp, norm = encoder.mlp, torch.nn.BatchNorm1d(4)
    branch = mlp.out(torch.relu(norm(mlp.hidden(zeroed.flatten(0, 1))))).unflatten(0, (3, 4))
    rows = encoder.fc(zeroed) + branch
    expected = torch.stack([rows[b, :length].amax(dim=0) for b, length in enumerate(lengths.tolist())])
    found = encoder(features, lengths)[:, 0]
    torch.testing.assert_close(found, torch.nn.functional.normalize(expected))
    torch.testing.assert_close(mlp.norm.state_dict(), norm.state_dict())
    # Outside training the running statistics are used, and padding has no say.
    encoder.eval()
    padded = torch.cat([features, torch.randn(3, 2, 5)], dim=1)
    torch.testing.assert_close(encoder(padded, lengths), encoder(features, lengths))


def test_views_are_unit_vectors_of_one_projection():
    torch.manual_seed(0)
    encoder = FeatureEncoder(5, 8, build_views(3, "gpo", 8), mlp=False)
    features, lengths = torch.randn(2, 4, 5), torch.tensor([4, 2])
    found = encoder(features, lengths)
    assert found.shape == (2, 3, 8)
    for k, view in enumerate(encoder.pooling.views):
        pooled = view(encoder.fc(features), lengths)
        torch.testing.assert_close(found[:, k], torch.nn.functional.normalize(pooled))


def test_projections_are_views_of_one_aggregator():
    """The released MV-VSE code: K linear layers, each pooled by the maximum."""
    torch.manual_seed(0)
    encoder = FeatureEncoder(5, 8, build_pooling("max", 8), mlp=False, projections=3)
    features, lengths = torch.randn(2, 4, 5), torch.tensor([4, 2])
    found = encoder(features, lengths)
    assert found.shape == (2, 3, 8)
    for k in range(3):
        weight, bias = encoder.fc.weight[8 * k : 8 * k + 8], encoder.fc.bias[8 * k : 8 * k + 8]
        assert weight.abs().max() <= (6 / 13) ** 0.5
        for sample, length, view in zip(features, lengths.tolist(), found[:, k], strict=True):
            pooled = (sample[:length] @ weight.T + bias).amax(dim=0)
            torch.testing.assert_close(view, pooled / (pooled.norm() + 1e-8))


def test_initialisation_of_the_projection_is_xavier_uniform():
    torch.manual_seed(0)
    encoder = FeatureEncoder(300, 200, build_pooling("mean", 200), mlp=False)
    bound = (6 / 500) ** 0.5
    assert encoder.fc.weight.abs().max() <= bound
    torch.testing.assert_close(encoder.fc.weight.std(), torch.tensor(bound / 3**0.5), rtol=0.02, atol=0)
    assert encoder.fc.bias.eq(0).all()
    assert encoder.mlp is None


def test_bigru_encoder_sample_by_sample():
    torch.manual_seed(0)
    encoder = BiGRUEncoder(20, 8, build_pooling("mean", 8), word_dim=6)
    assert encoder.embed.weight.abs().max() <= 0.1
    tokens, lengths = torch.randint(0, 20, (4, 7)), torch.tensor([2, 7, 1, 4])
    for row, length, found in zip(tokens, lengths.tolist(), encoder(tokens, lengths), strict=True):
        hidden = encoder.rnn(encoder.embed(row[:length]).unsqueeze(0))[0][0]
        pooled = ((hidden[:, :8] + hidden[:, 8:]) / 2).mean(dim=0)
        torch.testing.assert_close(found, pooled / (pooled.norm() + 1e-8), atol=1e-6, rtol=1e-5)


def test_given_word_vectors_are_where_training_starts():
    encoder = BiGRUEncoder(5, 8, build_pooling("mean", 8), word_dim=3)
    before = encoder.embed.weight.detach().clone()
    vectors = torch.tensor([[1.0, 2, 3], [4, 5, 6]])
    encoder.set_word_vectors(torch.tensor([4, 1]), vectors)
    assert torch.equal(encoder.embed.weight[[4, 1]], vectors)
    assert torch.equal(encoder.embed.weight[[0, 2, 3]], before[[0, 2, 3]])
    assert encoder.embed.weight.requires_grad
    for words, given in (([4], vectors), ([4, 1], vectors[:, :2])):
        with pytest.raises(ValueError, match="need vectors of the shape"):
            encoder.set_word_vectors(torch.tensor(words), given)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_words_that_stay_stand_before_those_that_are_learned(dropout: float):
    torch.manual_seed(0)
    encoder = BiGRUEncoder(2000, 8, build_pooling("last", 8), 6, directions=1, dropout=dropout, learned_dim=100)
    torch.testing.assert_close(encoder.learned.weight.std(), torch.tensor(0.3785), rtol=0.02, atol=0)
    vectors = torch.randn(2, 6)
    encoder.set_word_vectors(torch.tensor([4, 1]), vectors)
    tokens, lengths = torch.tensor([[4, 2, 1], [1, 4, 0]]), torch.tensor([3, 2])
    fixed = {4: vectors[0], 1: vectors[1], 2: torch.zeros(6)}
    for row, length, found in zip(tokens.tolist(), lengths.tolist(), encoder.eval()(tokens, lengths), strict=True):
        words = torch.stack([torch.cat([fixed[word], encoder.learned.weight[word]]) for word in row[:length]])
        state = encoder.rnn(words.unsqueeze(0))[1].flatten()
        torch.testing.assert_close(found, state / (state.norm() + 1e-8), atol=1e-6, rtol=1e-5)
    encoder.train()(tokens, lengths)[0, 0].backward()
    assert encoder.embed.weight.grad is None
    assert set(encoder.learned.weight.grad.any(dim=1).nonzero().flatten().tolist()) == {1, 2, 4}


def test_gru_of_one_direction_ends_in_the_state_that_has_read_everything():
    torch.manual_seed(0)
    encoder = BiGRUEncoder(20, 8, build_pooling("last", 8), word_dim=6, directions=1)
    tokens, lengths = torch.randint(0, 20, (3, 7)), torch.tensor([2, 7, 1])
    for row, length, found in zip(tokens, lengths.tolist(), encoder(tokens, lengths), strict=True):
        state = encoder.rnn(encoder.embed(row[:length]).unsqueeze(0))[1].flatten()
        torch.testing.assert_close(found, state / (state.norm() + 1e-8), atol=1e-6, rtol=1e-5)


def test_batch_norm_is_pytorchs_in_one_process():
    torch.manual_seed(0)
    ours, theirs = GlobalBatchNorm(5), torch.nn.BatchNorm1d(5)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for training in (True, True, False):
        rows = torch.randn(9, 5) * 3 + 1
        torch.testing.assert_close(ours.train(training)(rows), theirs.train(training)(rows))
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


def test_unit_length_is_float32_and_safe_at_zero():
    vectors = unit_length(torch.tensor([[3e4, 4e4], [0.0, 0.0]]).half())
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(vectors, torch.tensor([[0.6, 0.8], [0.0, 0.0]]), atol=1e-3, rtol=0)


def test_unit_length_has_a_gradient_at_zero():
    vectors = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    unit_length(vectors).sum().backward()
    # Of x / |x|: (1 - u (u . 1)) / |x|.
    torch.testing.assert_close(vectors.grad, torch.tensor([[0.032, -0.024], [1.0, 1.0]]))


def test_dropout_is_of_what_is_pooled_and_of_the_words_and_only_in_training():
    """Oracle: the same draws by hand, on the projected rows and on the word vectors."""
    encoder = FeatureEncoder(5, 8, build_pooling("mean", 8), mlp=False, dropout=0.3)
    features, lengths = torch.randn(3, 4, 5), torch.tensor([4, 4, 4])
    torch.manual_seed(1)
    found = encoder(features, lengths)
    torch.manual_seed(1)
    rows = torch.nn.functional.dropout(encoder.fc(features.flatten(0, 1)), 0.3)
    torch.testing.assert_close(found[:, 0], unit_length(rows.unflatten(0, (3, 4)).mean(dim=1)))
    texts = BiGRUEncoder(10, 8, build_pooling("mean", 8), word_dim=6, dropout=0.3)
    tokens = torch.randint(10, (2, 4))
    torch.manual_seed(2)
    found = texts(tokens, torch.tensor([4, 4]))
    torch.manual_seed(2)
    states = texts.rnn(torch.nn.functional.dropout(texts.embed(tokens), 0.3))[0].unflatten(2, (2, 8)).mean(dim=2)
    torch.testing.assert_close(found, unit_length(states.mean(dim=1)))
    for module, inputs in ((encoder.eval(), (features, lengths)), (texts.eval(), (tokens, torch.tensor([4, 4])))):
        torch.testing.assert_close(module(*inputs), module(*inputs), rtol=0, atol=0)


def test_options_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ValueError, match="no effect without the MLP"):
        FeatureEncoder(5, 8, build_pooling("mean", 8), mlp=False, norm_rows="padded")
    with pytest.raises(ValueError, match="1 with the MLP; got 2 with mlp=True"):
        FeatureEncoder(5, 8, build_pooling("max", 8), projections=2)

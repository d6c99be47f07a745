"""A saved model is the model, and a damaged one is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

from vse_core.digests import DIGESTS, DigestError, write_digests
from vse_core.models import build_model, load_model
from vse_core.models.build import _Unset

SPECIFICATION = {
    "feature_dim": 5,
    "vocabulary_size": 11,
    "embed_dim": 8,
    "image": {"pooling": {"name": "gpo"}, "mlp": True},
    "text": {"pooling": {"name": "mean"}, "word_dim": 6},
}


def test_round_trip(tmp_path: Path):
    torch.manual_seed(0)
    model = build_model(**SPECIFICATION)
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert not loaded.training
    features, lengths = torch.randn(2, 3, 5), torch.tensor([3, 1])
    tokens = torch.tensor([[1, 2, 3], [4, 0, 0]])
    model.eval()
    images = loaded.encode_images(features, lengths)
    assert images.shape == (2, 1, 8)
    assert torch.equal(images, model.encode_images(features, lengths))
    assert torch.equal(loaded.encode_texts(tokens, lengths), model.encode_texts(tokens, lengths))
    torch.testing.assert_close(images.norm(dim=-1), torch.ones(2, 1))


def test_pretrained_weights_are_not_needed_any_more(tmp_path: Path):
    weights, bundle = tmp_path / "weights", tmp_path / "bundle"
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
    BertModel(BertConfig(vocab_size=11, **sizes)).save_pretrained(weights)
    text = {"name": "bert", "weights": str(weights), "pooling": {"name": "gpo"}}
    model = build_model(**SPECIFICATION | {"text": text}).eval()
    bundle.mkdir()
    model.save(bundle)
    shutil.rmtree(weights)
    assert str(weights) not in (bundle / "model.json").read_text()
    tokens, lengths = torch.tensor([[1, 2, 3], [4, 0, 0]]), torch.tensor([3, 1])
    loaded = load_model(bundle)
    assert torch.equal(loaded.encode_texts(tokens, lengths), model.encode_texts(tokens, lengths))
    again = tmp_path / "again"
    again.mkdir()
    loaded.save(again)
    for file in ("model.json", "model.safetensors"):
        assert (again / file).read_bytes() == (bundle / file).read_bytes()


def test_loading_draws_no_parameters_which_are_read_afterwards():
    before = torch.get_rng_state()
    with _Unset():
        modules = [nn.Embedding(3, 4), nn.Linear(4, 3), nn.GRU(4, 3)]
        assert torch.equal(torch.get_rng_state(), before)
        buffer = torch.empty(3).normal_()  # no file has it
    torch.set_rng_state(before)
    assert torch.equal(buffer, torch.empty(3).normal_())
    assert all(isinstance(parameter, nn.Parameter) for module in modules for parameter in module.parameters())


def test_text_encoders_go_by_their_names():
    with pytest.raises(ValueError, match="unknown text encoder 'brt'; known: bigru, bert"):
        build_model(**SPECIFICATION | {"text": SPECIFICATION["text"] | {"name": "brt"}})
    with pytest.raises(ValueError, match="no option 'word_dimm'"):
        build_model(**SPECIFICATION | {"text": {"pooling": {"name": "mean"}, "word_dimm": 6}})


def test_missing_and_misfitting_files_are_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"model\.json is missing"):
        load_model(tmp_path)
    build_model(**SPECIFICATION).save(tmp_path)
    (tmp_path / "model.json").write_text(json.dumps(SPECIFICATION | {"embed_dim": 4}))
    write_digests(tmp_path)
    with pytest.raises(ValueError, match="do not fit"):
        load_model(tmp_path)


def test_a_flipped_bit_of_the_weights_is_refused(tmp_path: Path):
    build_model(**SPECIFICATION).save(tmp_path)
    load_model(tmp_path)
    weights = bytearray((tmp_path / "model.safetensors").read_bytes())
    weights[-5] ^= 1
    (tmp_path / "model.safetensors").write_bytes(weights)
    with pytest.raises(DigestError, match=r"model\.safetensors is damaged"):
        load_model(tmp_path)
    (tmp_path / DIGESTS).unlink()
    with pytest.raises(DigestError, match="has format 0, of an earlier version"):
        load_model(tmp_path)


def test_views_change_the_names_of_the_pooling_alone():
    one = build_model(**SPECIFICATION)
    three = build_model(**SPECIFICATION | {"image": {"pooling": {"name": "gpo"}, "views": 3, "mlp": True}})
    assert "image_encoder.pooling.gru.weight_ih_l0" in one.state_dict()
    added = three.state_dict().keys() - one.state_dict().keys()
    assert {name.rsplit(".", 2)[0] for name in added} == {f"image_encoder.pooling.views.{k}" for k in range(3)}
    images = three.encode_images(torch.randn(2, 3, 5), torch.tensor([3, 1]))
    assert images.shape == (2, 3, 8)
    torch.testing.assert_close(images.norm(dim=-1), torch.ones(2, 3))


def test_views_by_projections_are_saved(tmp_path: Path):
    torch.manual_seed(0)
    image = {"pooling": {"name": "gpo"}, "projections": 3, "mlp": False}
    model = build_model(**SPECIFICATION | {"image": image}).eval()
    assert model.image_encoder.fc.weight.shape == (3 * 8, 5)
    model.save(tmp_path)
    features, lengths = torch.randn(2, 3, 5), torch.tensor([3, 1])
    images = load_model(tmp_path).encode_images(features, lengths)
    assert images.shape == (2, 3, 8)
    assert torch.equal(images, model.encode_images(features, lengths))

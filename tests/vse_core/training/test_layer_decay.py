"""Rates by layer of a network, against their definition."""

import pytest
from torch import nn
from transformers import BertConfig, BertModel

from vse_core.training.layer_decay import layer_rates
from vse_core.training.optim import RATE_FACTOR, build_optimizer


def model() -> nn.ModuleDict:
    sizes = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 12}
    bert = BertModel(BertConfig(vocab_size=11, **sizes))
    bert.encoder.layer[1].requires_grad_(False)
    return nn.ModuleDict({"text": nn.ModuleDict({"bert": bert}), "head": nn.Linear(2, 2)})


def test_each_layer_at_its_rate() -> None:
    both = model()
    optimizer = build_optimizer(both, 1.0, 0.0, layer_rates(both, {"text.bert": 0.1}, 0.5))
    rates = {id(each): group[RATE_FACTOR] for group in optimizer.param_groups for each in group["params"]}
    expected = {"embeddings": 0.1 / 16, "encoder.layer.0": 0.1 / 8, "encoder.layer.2": 0.1 / 2, "pooler": 0.1}
    for name, parameter in both.text["bert"].named_parameters():
        part = next((part for part in expected if name.startswith(part)), None)
        assert rates.get(id(parameter)) == (pytest.approx(expected[part]) if part else None), name
    assert {rates[id(parameter)] for parameter in both.head.parameters()} == {1.0}


def test_a_network_without_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="Linear has no list"):
        layer_rates(nn.ModuleDict({"image": nn.Linear(2, 2)}), {"image": 1.0}, 0.5)

"""The BERT encoder against BERT written out by its definition, one caption at a time; its weights and its limits."""

import math
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import (
    AutoModel,
    BertConfig,
    BertModel,
    CLIPConfig,
    CLIPTextModel,
    DistilBertConfig,
    ElectraConfig,
    ModernBertConfig,
    PreTrainedConfig,
    ResNetConfig,
    RobertaConfig,
    SiglipConfig,
    SiglipTextModel,
    T5Config,
    T5EncoderModel,
    ViTConfig,
)

from vse_core import static_shapes
from vse_core.encoders import bert
from vse_core.encoders.bert import BertEncoder
from vse_core.encoders.pretrained import architecture_of, load_pretrained
from vse_core.models import build_model
from vse_core.pooling import build_pooling

DIM = 6
HEADS = 2
TOWER = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": HEADS, "intermediate_size": 12}
CONFIG = BertConfig(**TOWER | {"num_hidden_layers": 2}, vocab_size=30, max_position_embeddings=16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights as they are published: with a pooler."""
    torch.manual_seed(0)
    model = BertModel(CONFIG)
    with torch.no_grad():
        for parameter in model.parameters():  # the initial ones are too small, and layer norms too plain, to show much
            parameter.add_(torch.randn_like(parameter) * 0.5)
    path = tmp_path_factory.mktemp("weights")
    model.save_pretrained(path)
    return path


def make_encoder(folder: Path, pooling: str = "gpo") -> BertEncoder:
    torch.manual_seed(1)
    return BertEncoder(DIM, build_pooling(pooling, DIM), weights=str(folder))


@pytest.fixture(scope="module")
def fixed(folder: Path) -> BertEncoder:
    return make_encoder(folder).eval()


def layer_norm(rows: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    centred = rows - rows.mean(dim=-1, keepdim=True)
    scaled = centred / torch.sqrt(centred.square().mean(dim=-1, keepdim=True) + 1e-12)
    return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]


def linear(rows: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    return rows @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def naive_bert(tokens: list[int], state: dict[str, Tensor]) -> Tensor:
    """Devlin et al. (2019): embeddings, then blocks of self-attention and feed-forward with residuals."""
    table = state["embeddings.word_embeddings.weight"]
    rows = torch.stack(
        [
            table[token]
            + state["embeddings.position_embeddings.weight"][place]
            + state["embeddings.token_type_embeddings.weight"][0]
            for place, token in enumerate(tokens)
        ]
    )
    rows = layer_norm(rows, state, "embeddings.LayerNorm")
    for number in range(CONFIG.num_hidden_layers):
        block = f"encoder.layer.{number}"
        query, key, value = (linear(rows, state, f"{block}.attention.self.{x}") for x in ("query", "key", "value"))
        width = CONFIG.hidden_size // HEADS
        mixed = torch.zeros_like(rows)
        for head in range(HEADS):
            part = slice(head * width, (head + 1) * width)
            for place in range(len(tokens)):
                scores = torch.stack([query[place, part] @ row[part] / math.sqrt(width) for row in key])
                mixed[place, part] = sum(
                    (w * row[part] for w, row in zip(scores.softmax(0), value, strict=True)), torch.zeros(width)
                )
        attended = linear(mixed, state, f"{block}.attention.output.dense")
        rows = layer_norm(rows + attended, state, f"{block}.attention.output.LayerNorm")
        hidden = linear(rows, state, f"{block}.intermediate.dense")
        hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
        rows = layer_norm(rows + linear(hidden, state, f"{block}.output.dense"), state, f"{block}.output.LayerNorm")
    return rows


def test_caption_by_caption(folder: Path) -> None:
    encoder = make_encoder(folder, "mean").eval()
    state = {name: tensor.detach() for name, tensor in encoder.bert.state_dict().items()}
    torch.manual_seed(2)
    tokens, lengths = torch.randint(0, 30, (4, 7)), torch.tensor([2, 7, 1, 4])
    for row, length, found in zip(tokens.tolist(), lengths.tolist(), encoder(tokens, lengths), strict=True):
        projected = naive_bert(row[:length], state) @ encoder.linear.weight.T + encoder.linear.bias
        pooled = projected.mean(dim=0)
        torch.testing.assert_close(found, pooled / pooled.norm(), atol=1e-5, rtol=1e-4)


@settings(max_examples=10)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 4))
def test_a_caption_alone_and_in_a_batch_is_the_same(fixed: BertEncoder, lengths: list[int], more: int) -> None:
    # Padding is told by the lengths, not by the ids that stand there.
    tokens = torch.randint(0, 30, (len(lengths), max(lengths) + more), generator=torch.Generator().manual_seed(3))
    together = fixed(tokens, torch.tensor(lengths))
    for row, length, found in zip(tokens, lengths, together, strict=True):
        alone = fixed(row[None, :length], torch.tensor([length]))
        torch.testing.assert_close(found, alone[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("captions", [1, 32, 70])
def test_groups_of_similar_length_are_read_as_one_padded_batch(folder: Path, captions: int) -> None:
    """Vectors and all gradients; where shapes may not depend on lengths, as on a GPU, nothing is grouped."""
    encoder = make_encoder(folder).double().eval()
    tokens, lengths = torch.randint(0, 30, (captions, 9)), torch.randint(1, 9, (captions,))

    def read() -> list[Tensor]:
        encoder.zero_grad()
        texts = encoder(tokens, lengths)
        texts.square()[:, 0].sum().backward()
        return [
            texts.detach(),
            *(parameter.grad.clone() for parameter in encoder.parameters() if parameter.grad is not None),
        ]

    with patch.object(encoder.bert, "forward", wraps=encoder.bert.forward) as of_groups:
        in_groups = read()
    with patch.object(static_shapes, "EVERYWHERE", True):
        for found, expected in zip(in_groups, read(), strict=True):
            torch.testing.assert_close(found, expected)
    shapes = [call.kwargs["input_ids"].shape for call in of_groups.call_args_list]
    ordered = lengths.sort().values
    assert shapes == [(len(group), int(group[-1])) for group in ordered.split(32)]
    # Processes that share the weights have other numbers of captions, and call the network once.
    with (
        patch.object(bert, "is_sharded", lambda _network: True),
        patch.object(encoder.bert, "forward", wraps=encoder.bert.forward) as of_all,
    ):
        encoder(tokens, lengths)
    assert of_all.call_count == 1


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        DistilBertConfig(vocab_size=30, dim=8, n_layers=1, n_heads=2, hidden_dim=12, max_position_embeddings=16),
        ElectraConfig(**TOWER, vocab_size=30, embedding_size=6, max_position_embeddings=16),
    ],
    ids=lambda config: config.model_type,
)
def test_every_parameter_of_any_such_network_is_trained(config: PreTrainedConfig) -> None:
    architecture = architecture_of(AutoModel.from_config(config))
    encoder = BertEncoder(DIM, build_pooling("gpo", DIM), architecture=architecture)
    assert {name.partition(".")[0] for name in encoder.state_dict()} == {"bert", "linear", "pooling"}
    texts = encoder(torch.randint(0, 30, (3, 6)), torch.tensor([6, 2, 3]))
    torch.testing.assert_close(texts.norm(dim=-1), torch.ones(3))
    (texts * torch.randn_like(texts)).sum().backward()
    assert [name for name, parameter in encoder.named_parameters() if parameter.grad is None] == []


VISION = {**TOWER, "image_size": 16, "patch_size": 8}
TEXT = {**TOWER, "vocab_size": 30, "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2}
NETWORKS: list[tuple[PreTrainedConfig, int | None]] = [
    (CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=6), 16),
    (SiglipConfig(text_config=TEXT, vision_config=VISION), 16),
    (RobertaConfig(**TEXT, pad_token_id=1), 14),
    (ModernBertConfig(**TEXT, pad_token_id=0, cls_token_id=1, sep_token_id=2), 16),
    (T5Config(vocab_size=30, d_model=8, d_kv=4, d_ff=12, num_layers=1, num_heads=2), None),
]


@pytest.mark.parametrize(("config", "positions"), NETWORKS, ids=lambda each: getattr(each, "model_type", ""))
def test_any_text_network_or_text_tower(config: PreTrainedConfig, positions: int | None, tmp_path: Path) -> None:
    """The hidden states are those of transformers' own class for the text side of a checkpoint, saved and rebuilt."""
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    library = {"clip": CLIPTextModel, "siglip": SiglipTextModel, "t5": T5EncoderModel}.get(config.model_type, AutoModel)
    network = library.from_pretrained(tmp_path).eval()
    encoder = make_encoder(tmp_path, "mean").eval()
    assert encoder.max_tokens == positions
    assert str(tmp_path) not in str(encoder.rebuilt_by)
    tokens, lengths = torch.randint(3, 30, (3, 7)), torch.tensor([7, 3, 1])
    rebuilt = BertEncoder(DIM, build_pooling("mean", DIM), **encoder.rebuilt_by).eval()
    rebuilt.load_state_dict(encoder.state_dict())
    for row, length, found, again in zip(
        tokens, lengths, encoder(tokens, lengths), rebuilt(tokens, lengths), strict=True
    ):
        pooled = encoder.linear(network(input_ids=row[None, :length]).last_hidden_state[0]).mean(dim=0)
        torch.testing.assert_close(found, pooled / pooled.norm(), atol=1e-5, rtol=1e-4)
        assert torch.equal(found, again)
    encoder.train()(tokens, lengths).square()[:, 0].sum().backward()
    assert [name for name, parameter in encoder.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("config", [ViTConfig(**VISION), ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1])])
def test_a_network_that_reads_no_text_gets_one_message(config: PreTrainedConfig, tmp_path: Path) -> None:
    AutoModel.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match=r"(ViT|ResNet)Model is not a text encoder \(.*\); name a network that reads text"
    ):
        make_encoder(tmp_path)


def test_weights_are_loaded_in_float32_whatever_they_are_stored_in(tmp_path: Path) -> None:
    BertModel(CONFIG).half().save_pretrained(tmp_path)
    assert {parameter.dtype for parameter in load_pretrained(str(tmp_path)).parameters()} == {torch.float32}


def test_captions_beyond_the_positions_are_refused(folder: Path) -> None:
    encoder = make_encoder(folder)
    assert encoder.max_tokens == 16
    encoder(torch.ones(1, 16, dtype=torch.long), torch.tensor([16]))
    with pytest.raises(ValueError, match="17 tokens is too long: the text encoder has 16 positions"):
        encoder(torch.ones(1, 17, dtype=torch.long), torch.tensor([17]))


def test_empty_captions_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="length 0"):
        make_encoder(folder)(torch.ones(2, 3, dtype=torch.long), torch.tensor([3, 0]))


def test_arguments_that_do_not_fit(folder: Path) -> None:
    pooling: nn.Module = build_pooling("mean", DIM)
    sides: dict[str, Any] = {"image": {"pooling": {"name": "mean"}}, "text": {"name": "bert", "weights": str(folder)}}
    sides["text"]["pooling"] = {"name": "mean"}
    with pytest.raises(ValueError, match="31 token ids, the text encoder knows 30"):
        build_model(feature_dim=5, vocabulary_size=31, embed_dim=DIM, **sides)
    with pytest.raises(ValueError, match="'no-such-type'"):
        BertEncoder(DIM, pooling, architecture={"model_type": "no-such-type"})


def test_a_pickle_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(CONFIG.to_json_string())
    torch.save(BertModel(CONFIG).state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"\*\.safetensors"):
        load_pretrained(str(tmp_path))


def test_weights_that_are_not_there_or_not_whole(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_pretrained(str(tmp_path / "nowhere"))
    deeper = BertConfig(**{**CONFIG.to_dict(), "num_hidden_layers": 3})
    BertModel(CONFIG, add_pooling_layer=False).save_pretrained(tmp_path)
    load_pretrained(str(tmp_path))  # a missing pooler does no harm
    (tmp_path / "config.json").write_text(deeper.to_json_string())
    with pytest.raises(ValueError, match=r"16 parameters are missing \['encoder.layer.2"):
        load_pretrained(str(tmp_path))

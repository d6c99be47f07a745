"""From captions to a trained and searchable model, with BERT and with given word vectors, on small networks."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, BertConfig, BertModel, BertTokenizer

from pipelines.config import PipelineConfig, load_config
from pipelines.inference.embedder import Embedder, QueryError, write_extractor
from pipelines.kinds.inputs import SplitData
from pipelines.kinds.words import build_caption_encoder
from pipelines.stages.train import plan as train
from pipelines.training.prepare import prepare
from pipelines.training.trainer import Trainer
from preprocessing.captions.encoder import CaptionEncoder, load_caption_encoder
from preprocessing.captions.subwords import SubwordTokenizer
from preprocessing.features import TINY_RESNET
from preprocessing.shards.reader import ShardReader
from tests.dual_encoders import write_dual_encoder
from tests.pipelines.training.by_hand import SMALL, quiet_trainer
from tests.pipelines.training.test_trainer import WORDS, KilledError, Recorder, losses_of, shards, write_split

__all__ = ["shards"]
from vse_core.models import load_model

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(w for w in WORDS if w != "square"), "squa", "##re"]


def write_bert(folder: Path, dropout: float = 0.1) -> Path:
    """A random network as it would be published."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=20,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.3,
    )
    BertModel(config).save_pretrained(folder)
    BertTokenizer(vocab={piece: place for place, piece in enumerate(PIECES)}).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("bert"))


def bert_text(folder: Path, factor: float = 0.3) -> str:
    return f"model.text={{name: bert, weights: {folder}, learning_rate_factor: {factor}, pooling: {{name: gpo}}}}"


def make_config(text: str, *overrides: str) -> PipelineConfig:
    return load_config(None, [text, *SMALL, "vocabulary.min_count=1", "training.epochs=2", *overrides])


def prepared(config: PipelineConfig, shards: Path, out: Path) -> CaptionEncoder:
    """Prepare the captions as the training stage does before training."""
    out.mkdir(exist_ok=True)
    return build_caption_encoder(config.kind_settings, ShardReader(shards / "train", "grid"), out)[0]


def make_trainer(config: PipelineConfig, shards: Path, out: Path, tracker: Recorder | None) -> Trainer:
    train, dev = SplitData(ShardReader(shards / "train", "grid")), SplitData(ShardReader(shards / "dev", "grid"))
    encoder = prepared(config, shards, out)
    return quiet_trainer(config, train, dev, encoder, out, tracker)


def test_a_run_with_bert_learns_at_two_rates(shards: Path, tmp_path: Path) -> None:
    bert = write_bert(tmp_path / "bert", dropout=0)  # what is drawn would decide how much is learned of so few images
    config = make_config(bert_text(bert), "training.epochs=12", "loss.all_negatives=12 epochs")
    trainer = make_trainer(config, shards, tmp_path, Recorder())
    history = trainer.run()
    assert history[-1]["rsum"] > history[0]["rsum"] + 50
    assert sum(losses_of(tmp_path)[-8:]) < sum(losses_of(tmp_path)[:8]) * 0.7
    base, slow = trainer.optimizer.param_groups
    assert slow["lr"] == pytest.approx(0.3 * base["lr"])
    assert {id(parameter) for parameter in slow["params"]} == {
        id(parameter) for parameter in trainer.model.text_encoder.bert.parameters()
    }


def test_three_views_and_an_aggregator_learn_over_the_frozen_tokens_of_clip(shards: Path, tmp_path: Path) -> None:
    clip = write_dual_encoder(tmp_path / "clip", "clip", WORDS)
    text = bert_text(clip, factor=0)
    views = "model.image={name: features, pooling: {name: gpo}, views: 3, mlp: true}"
    config = make_config(text, views, "training.epochs=12", "loss.all_negatives=12 epochs")
    trainer = make_trainer(config, shards, tmp_path / "run", Recorder())
    history = trainer.run()
    assert history[-1]["rsum"] > history[0]["rsum"] + 30
    tower, model = AutoModel.from_pretrained(clip).text_model, load_model(max((tmp_path / "run").glob("best-*")))
    assert all(
        torch.equal(tensor, model.text_encoder.bert.state_dict()[name]) for name, tensor in tower.state_dict().items()
    )
    towers = {id(parameter) for parameter in trainer.model.text_encoder.bert.parameters()}
    learned = {id(parameter) for group in trainer.optimizer.param_groups for parameter in group["params"]}
    assert learned == {id(parameter) for parameter in trainer.model.parameters()} - towers
    assert model.encode_images(torch.randn(2, 5, model.image_encoder.feature_dim), torch.tensor([5, 3])).shape[1] == 3


@pytest.mark.parametrize("die_at", [4, 9])
def test_dropout_and_augmentation_go_on_where_a_kill_interrupted_them(
    shards: Path, bert: Path, tmp_path: Path, die_at: int
) -> None:
    config = make_config(bert_text(bert))
    history = make_trainer(config, shards, tmp_path / "undisturbed", Recorder()).run()
    with pytest.raises(KilledError):
        make_trainer(config, shards, tmp_path / "killed", Recorder(die_at)).run()
    torch.manual_seed(99)  # another process would have drawn other numbers
    assert make_trainer(config, shards, tmp_path / "killed", Recorder()).run() == history
    assert losses_of(tmp_path / "killed") == losses_of(tmp_path / "undisturbed")


def test_what_is_saved_needs_neither_weights_nor_tokenizer(shards: Path, tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert")
    trainer = make_trainer(make_config(bert_text(folder), "training.epochs=1"), shards, tmp_path / "out", Recorder())
    trainer.run()
    shutil.rmtree(folder)
    best = tmp_path / "out" / "best-001"
    write_extractor(tmp_path / "extractor", "grid", {"weights": TINY_RESNET, "seed": 0})
    embedder = Embedder(best, tmp_path / "extractor", device="cpu")
    texts = ["red square", "a big star above below left"]
    encoder = load_caption_encoder(best)
    assert isinstance(encoder, SubwordTokenizer)
    model = load_model(best)
    for text, found in zip(texts, embedder.embed_texts(texts), strict=True):
        ids = encoder.encode(text)
        alone = model.encode_texts(torch.tensor([ids]), torch.tensor([len(ids)]))
        torch.testing.assert_close(found, alone[0].detach(), atol=1e-5, rtol=0)
    with pytest.raises(QueryError, match="more than the 20 tokens that the model reads; shorten it") as caught:
        embedder.embed_texts(["red", "red " * 20])
    assert caught.value.position == 1


@pytest.mark.parametrize("name", ["bert", "bigru"])
def test_captions_of_any_length_are_cut_before_training(bert: Path, tmp_path: Path, name: str) -> None:
    """One of 600 words ended the training with BERT in its first steps."""
    write_split(tmp_path / "train", 23, 0, words=600)
    write_split(tmp_path / "dev", 9, 1, words=5000)
    text = bert_text(bert) if name == "bert" else "model.text={name: bigru, word_dim: 3, pooling: {name: gpo}}"
    config = make_config(text, "training.epochs=1")
    train, dev = (SplitData(ShardReader(tmp_path / split, "grid")) for split in ("train", "dev"))
    (tmp_path / "out").mkdir()
    _, facts, _ = prepare(config.training_settings, train, dev, tmp_path / "out")
    assert facts["captions_truncated"] == 2
    encoder = load_caption_encoder(tmp_path / "out")
    (metrics,) = quiet_trainer(config, train, dev, encoder, tmp_path / "out", None).run()
    assert metrics["rsum"] > 0


def test_words_begin_with_the_vectors_of_a_file(shards: Path, tmp_path: Path) -> None:
    glove = tmp_path / "glove.txt"
    glove.write_text("red 1 2 3\nunheard 4 5 6\nstar 7 8 9\n")
    config = make_config(f"model.text={{name: bigru, word_dim: 3, word_vectors: {glove}, pooling: {{name: gpo}}}}")
    trainer = make_trainer(config, shards, tmp_path / "out", None)
    ids = [trainer.caption_encoder.encode(word)[1] for word in ("red", "star")]
    assert trainer.model.text_encoder.embed.weight[ids].tolist() == [[1, 2, 3], [7, 8, 9]]
    _, facts = build_caption_encoder(config.kind_settings, ShardReader(shards / "train", "grid"), tmp_path / "out")
    assert facts == {"vocabulary_size": 17, "word_vector_coverage": round(2 / 17, 4)}
    assert "word_vectors" not in trainer.model.specification["text"]


def test_training_goes_by_what_the_weights_are_and_not_where_they_lie(bert: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(bert, moved)
    content = train.model_content(make_config(bert_text(bert)))
    assert train.model_content(make_config(bert_text(moved))) == content
    assert train.model_content(make_config(bert_text(moved, 0.2))) != content
    settings = json.loads((moved / "config.json").read_text())
    (moved / "config.json").write_text(json.dumps(settings | {"hidden_act": "relu"}))
    assert train.model_content(make_config(bert_text(moved))) != content

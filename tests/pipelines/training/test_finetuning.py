"""A backbone trained from images in shards to a model that can be searched, on a network small enough for a test."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pipelines.config import ConfigError, PipelineConfig, load_config
from pipelines.inference.embedder import Embedder, QueryError, write_extractor
from pipelines.kinds.inputs import SplitData
from pipelines.retrieval.gallery import build_gallery
from pipelines.runtime.stage import StageError
from pipelines.schema.encoders import RESNETS
from pipelines.training.prepare import prepare
from pipelines.training.trainer import Trainer
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.datasets import build_dataset
from preprocessing.extraction.extract import extract_shard, shard_specs
from preprocessing.features import build_extractor
from preprocessing.shards.reader import ShardReader
from tests.pipelines.training.by_hand import SMALL, Quiet, quiet_trainer
from tests.pipelines.training.test_trainer import losses_of
from tests.ranks import run_ranks
from vse_core.encoders import resnet
from vse_core.models import load_model
from vse_core.training.sharding import whole

NETWORK = (
    "{model_type: resnet, embedding_size: 8, hidden_sizes: [8, 8, 16, 16], depths: [1, 1, 1, 1], layer_type: basic}"
)
BACKBONE = (
    f"model.image={{name: backbone, architecture: {NETWORK}, image_size: 64, frozen_epochs: 1, "
    "learning_rate_factor: 0.5, pooling: {name: gpo}}"
)
IMAGES = {"train": 12, "dev": 8}


def make_config(*overrides: str, backbone: str = BACKBONE) -> PipelineConfig:
    return load_config(
        None,
        [
            "features={extractor: images}",
            backbone,
            f"dataset.images={json.dumps(IMAGES)}",
            *SMALL,
            "model.text.word_dim=8",
            "vocabulary.min_count=1",
            "training.epochs=3",
            "training.batch_size=15",
            "training.image_augmentation=true",
            "training.size_augmentation=grid",
            "training.warmup=0 steps",
            *overrides,
        ],
    )


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    dataset, extractor = build_dataset("scenes", seed=0, images=IMAGES), build_extractor("images")
    for split in IMAGES:
        (root / split).mkdir()
        for spec in shard_specs(dataset.records(split), root / split, 5, "f" * 64, ""):
            extract_shard(spec, extractor, batch_size=4)
    return root


class Recorder(Quiet):
    """A tracker that notes what is trainable at each step, and can die."""

    def __init__(self, die_at: int | None = None) -> None:
        self.die_at = die_at
        self.trainer: Trainer | None = None
        self.trainable: list[frozenset[str]] = []

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        if step == self.die_at:
            raise InterruptedError
        if "train/loss" in metrics and self.trainer is not None:
            named = self.trainer.model.image_encoder.backbone.named_parameters()
            self.trainable.append(frozenset(name for name, parameter in named if parameter.requires_grad))


def make_trainer(config: PipelineConfig, shards: Path, out: Path, tracker: Recorder | None) -> Trainer:
    train, dev = SplitData(ShardReader(shards / "train", "jpg")), SplitData(ShardReader(shards / "dev", "jpg"))
    captions = (caption["text"] for meta in train.reader.metas() for caption in meta["captions"])
    out.mkdir(exist_ok=True)
    trainer = quiet_trainer(config, train, dev, Vocabulary.build(captions, 1), out, tracker)
    if tracker is not None:
        tracker.trainer = trainer
    return trainer


@pytest.fixture(scope="module")
def undisturbed(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recorder, Trainer]:
    out, recorder = tmp_path_factory.mktemp("undisturbed"), Recorder()
    trainer = make_trainer(make_config(), shards, out, recorder)
    trainer.run()
    return out, recorder, trainer


def test_the_network_is_frozen_at_first(undisturbed: tuple[Path, Recorder, Trainer]) -> None:
    _, recorder, trainer = undisturbed
    names = {name for name, _ in trainer.model.image_encoder.backbone.named_parameters()}
    assert recorder.trainable == [frozenset()] * 4 + [frozenset(names)] * 8


def test_rates_and_statistics(shards: Path, tmp_path: Path) -> None:
    trainer = make_trainer(make_config("training.epochs=2"), shards, tmp_path, None)
    before = {name: tensor.clone() for name, tensor in trainer.model.image_encoder.backbone.state_dict().items()}
    trainer.run()
    after = trainer.model.image_encoder.backbone.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name, _ in trainer.model.image_encoder.backbone.named_parameters()}
    assert any("running_mean" in name for name in before)
    rates = [group["lr"] for group in trainer.optimizer.param_groups]
    assert rates[1] == pytest.approx(rates[0] / 2)
    assert len(trainer.optimizer.param_groups[1]["params"]) == len(changed)


@pytest.mark.parametrize("die_at", [3, 10])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(
    shards: Path, tmp_path: Path, undisturbed: tuple[Path, Recorder, Trainer], die_at: int
) -> None:
    with pytest.raises(InterruptedError):
        make_trainer(make_config(), shards, tmp_path, Recorder(die_at)).run()
    make_trainer(make_config(), shards, tmp_path, Recorder()).run()
    assert losses_of(tmp_path) == pytest.approx(losses_of(undisturbed[0]), abs=1e-5)


def run_rank(rank: int, shards: Path, out: Path, settings: Sequence[str]) -> None:
    trainer = make_trainer(make_config(*settings), shards, out, Recorder() if rank == 0 else None)
    trainer.run()
    state = {name: whole(tensor) for name, tensor in trainer.model.state_dict().items()}
    torch.save(state, out / f"state-{rank}.pt")


@pytest.mark.integration
@pytest.mark.parametrize("parallelism", ["ddp", "fsdp2"])
def test_two_processes_train_the_same_model_through_all_stages(
    shards: Path, tmp_path: Path, undisturbed: tuple[Path, Recorder, Trainer], parallelism: str
) -> None:
    run_ranks(run_rank, 2, shards, tmp_path, [f"training.parallelism={parallelism}"])
    assert losses_of(tmp_path) == pytest.approx(losses_of(undisturbed[0]), rel=1e-4, abs=1e-4)
    states = [torch.load(tmp_path / f"state-{rank}.pt", weights_only=True) for rank in range(2)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_the_model_can_be_searched_from_its_files_alone(
    shards: Path, tmp_path: Path, undisturbed: tuple[Path, Recorder, Trainer]
) -> None:
    model = next(undisturbed[0].glob("best-*"))
    write_extractor(tmp_path / "extractor", "images", make_config().features.options())
    embedder = Embedder(model, tmp_path / "extractor", "cpu")
    reader = ShardReader(shards / "dev", "jpg")
    gallery = build_gallery(load_model(model), reader, Vocabulary.load(model / "vocabulary.json"), "", batch_size=3)
    uris = [reader.meta(image)["image"] for image in range(len(reader))]
    torch.testing.assert_close(embedder.embed_images(uris), gallery.images_BKD, atol=1e-5, rtol=1e-5)
    assert gallery.images_BKD.shape == (8, 1, 16)
    broken = tmp_path / "broken.jpg"
    Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(broken)
    broken.write_bytes(broken.read_bytes()[:200])
    with pytest.raises(QueryError, match="input 1: damaged image"):
        embedder.embed_images([uris[0], str(broken)])


MISTAKES = {
    "features={extractor: grid, weights: tiny_resnet, random_seed: 0}": "set features.extractor to 'images'",
    "model.image.widths=3": "model.image.widths: unknown key",
    f"model.image.architecture={RESNETS[0][:-1]}": "must be one of resnet50, resnet101",
    "model.image.architecture=null": "needs weights, or an architecture",
    "model.image.weights=some/network": "leave out the one given",
    "model.image.frozen_epochs=-1": "model.image.frozen_epochs",
    "training.feature_dropout=0.5": "there are no features before the backbone",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_configurations_that_cannot_be(mistake: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_config(mistake)
    assert MISTAKES[mistake] in str(caught.value)


def test_the_configured_names_are_those_of_the_library() -> None:
    assert RESNETS == resnet.RESNETS


def test_a_network_that_is_random_in_evaluation_is_refused_before_training(shards: Path, tmp_path: Path) -> None:
    network = "{model_type: vit_mae, image_size: 64, patch_size: 8, hidden_size: 16, num_hidden_layers: 4, "
    network += "num_attention_heads: 2, intermediate_size: 16, decoder_num_hidden_layers: 1}"
    config = make_config(backbone=BACKBONE.replace(NETWORK, network))
    splits = [SplitData(ShardReader(shards / split, "jpg")) for split in ("train", "dev")]
    with pytest.raises(StageError, match="train: ViTMAEModel: two passes over one image give different features"):
        prepare(config.training_settings, *splits, tmp_path)

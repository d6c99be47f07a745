"""The presets against the published hyper-parameters, written down here once more."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pipelines.config import ConfigError, PipelineConfig, load_config
from pipelines.config.layers import PRESETS

GRIDS = "dataset: {format: scenes, images: {train: 8, dev: 4}}\nfeatures: {extractor: grid, weights: tiny_resnet}\n"


class Published(NamedTuple):
    """One row: both aggregators, views, loss, weight decay, BERT's rate (None: BiGRU), points of decay in epochs."""

    pooling: str
    views: int
    loss: str
    weight_decay: float
    bert_rate: float | None
    decay_epochs: tuple[int, ...] = (15,)


REGIONS = {
    "vse_pp": Published("mean", 1, "triplet", 0.01, None),
    "vse_pp_bert": Published("mean", 1, "triplet", 1e-4, 0.1),
    "vse_infty": Published("gpo", 1, "triplet", 0.01, None),
    "vse_infty_bert": Published("gpo", 1, "triplet", 1e-4, 0.1),
    "mv_vse": Published("gpo", 3, "multi_view", 0.01, None),
    "mv_vse_bert": Published("gpo", 3, "multi_view", 1e-4, 0.1),
    "vse_2ad": Published("adpool", 1, "adopt", 0.01, None),
    "vse_2ad_bert": Published("adpool", 1, "adopt", 1e-4, 0.1),
    "vse_2ad_release": Published("adpool", 1, "adopt", 0.01, None, tuple(range(15, 25))),
    "vse_2ad_release_bert": Published("adpool", 1, "adopt", 1e-4, 0.05, tuple(range(15, 25))),
    "vse_2ad_paper": Published("adpool", 1, "adopt", 0.01, None),
    "vse_2ad_paper_bert": Published("adpool", 1, "adopt", 1e-4, 0.1),
}


PICTURES = "dataset: {format: scenes, images: {train: 8, dev: 4}}\nfeatures: {extractor: images}\n"


class Backbone(NamedTuple):
    """One row: pooling and loss, text side, network, its rate, its pixels, the rest of the hyperparameters."""

    pooling: str
    loss: str
    text: str
    network: str
    rate: float
    image_size: int
    weight_decay: float = 1e-4


BACKBONES = {
    "vse_pp_r152_grid": Backbone("mean", "triplet", "bigru", "resnet152", 0.1, 512),
    "vse_pp_wsl_grid_bert": Backbone("mean", "triplet", "bert", "resnext101_32x8d", 0.01, 512),
    "vse_infty_r152_grid": Backbone("gpo", "triplet", "bigru", "resnet152", 0.1, 512),
    "vse_infty_butd_grid": Backbone("gpo", "triplet", "bigru", "resnet101_caffe", 0.01, 512),
    "vse_infty_butd_grid_bert": Backbone("gpo", "triplet", "bert", "resnet101_caffe", 0.01, 512),
    "vse_infty_wsl_grid_bert": Backbone("gpo", "triplet", "bert", "resnext101_32x8d", 0.01, 512),
    "vse_2ad_butd_grid": Backbone("adpool", "adopt", "bigru", "resnet101_caffe", 0.1, 512),
    "vse_2ad_butd_grid_bert": Backbone("adpool", "adopt", "bert", "resnet101_caffe", 0.1, 512),
    "vse_2ad_patch": Backbone("adpool", "adopt", "bigru", "google/vit-base-patch16-224", 0.1, 224, 0.01),
    "vse_2ad_patch_bert": Backbone("adpool", "adopt", "bert", "google/vit-base-patch16-224", 0.1, 224),
}


VIDEOS = {"vse_pp_video": "mean", "vse_infty_video": "gpo"}
HIERARCHICAL = {"hgr": "attention", "hgr_infty": "gpo"}


def preset(name: str, folder: Path, data: str = GRIDS) -> PipelineConfig:
    path = folder / "config.yaml"
    path.write_text(f"preset: {name}\n{data}", encoding="utf-8")
    return load_config(path)


def test_every_preset_is_checked_here() -> None:
    assert {path.stem for path in PRESETS.glob("[!_]*.yaml")} == {
        *REGIONS,
        *BACKBONES,
        *VIDEOS,
        *HIERARCHICAL,
        "mv_vse_release",
        "dual_encoder",
        "small_data",
        "univse",
        "univse_matched",
        "vse_c",
        "vse_c_release",
    }


def test_small_data_is_vse_infinity_with_the_learned_sigmoid_loss(tmp_path: Path) -> None:
    small, published = (preset(name, tmp_path).model_dump() for name in ("small_data", "vse_infty"))
    assert small["model"] == published["model"]
    assert (small["loss"]["name"], small["loss"]["learned"], small["loss"]["mask_same_image"]) == (
        "sigmoid",
        True,
        True,
    )
    training = small["training"]
    assert (training["epochs"], training["weight_decay"], training["feature_dropout"]) == (7, 0.3, 0.3)


def test_univse_is_the_paper_s_but_for_its_start(tmp_path: Path) -> None:
    config = preset("univse", tmp_path)
    assert (config.model.embed_dim, config.model.image.pooling.name, config.model.image.pooling.k) == (1024, "kmax", 10)
    text, loss = config.model.text, config.loss
    assert (text.word_dim, text.modifier_dim, text.alpha) == (300, 100, 0.75)
    assert (loss.margin, loss.component_weight, loss.object_weight, loss.attribute_weight) == (0.2, 0.5, 0.5, 0.5)
    assert (loss.relation_weight, str(loss.relations_after)) == (1.0, "2 epochs")
    assert (loss.object_negatives, loss.attribute_negatives, loss.relation_negatives) == (16, 8, (2, 4, 2))
    assert (config.training.learning_rate, config.training.batch_size, config.training.weight_decay) == (1e-3, 128, 0)
    assert loss.relevance_temperature == 1.0
    # A set of 8,000 captions has 62 steps an epoch: an epoch of all negatives would not be enough there.
    assert [loss.all_negatives.steps(steps_per_epoch) for steps_per_epoch in (62, 3234)] == [1000, 1000]
    assert [loss.options_at(step, 62)["negatives"] for step in (0, 999, 1000)] == ["all", "all", "hardest"]
    assert (text.start, text.relations) == ("orthogonal_bias", "words")


def test_a_gru_that_is_read_at_its_last_state_begins_so_that_it_remembers(tmp_path: Path) -> None:
    settings = ["preset=vse_pp", "model.text.pooling.name=last", "model.text.directions=1"]
    last = load_config(None, settings).model.text
    assert last.options()["start"] == last.model_dump()["start"] == "orthogonal_bias"
    named = load_config(None, [*settings, "model.text.start=published"]).model.text
    assert named.start == preset("mv_vse_release", tmp_path).model.text.start == "published"
    # Others begin as published, and their settings are what they were: the fingerprints of their runs stay.
    assert "start" not in preset("vse_pp", tmp_path).model.text.model_dump()


def test_vse_c_is_trained_as_released(tmp_path: Path) -> None:
    config = preset("vse_c", tmp_path)
    text, loss, training = config.model.text, config.loss, config.training
    assert (text.pooling.name, text.directions, text.start, text.word_dim) == ("last", 1, "published", 300)
    assert (str(loss.all_negatives), str(loss.adversarial_after), loss.adversarial_captions) == (
        "0 epochs",
        "1 epoch",
        5,
    )
    assert (loss.attack, training.epochs, training.learning_rate) == ("noun", 30, 1e-3)
    with pytest.raises(ConfigError, match=r"learned_dim: without word_vectors .* would all stay zero"):
        preset("vse_c_release", tmp_path)
    release = preset("vse_c_release", tmp_path, GRIDS + "model: {text: {word_vectors: glove.txt}}\n").model.text
    assert (text.learned_dim, release.word_dim, release.learned_dim) == (0, 300, 100)


@pytest.mark.parametrize("name", sorted(REGIONS))
def test_regions(name: str, tmp_path: Path) -> None:
    config, row = preset(name, tmp_path), REGIONS[name]
    image, text, loss, training = config.model.image, config.model.text, config.loss, config.training
    assert (image.pooling.name, text.pooling.name) == (row.pooling, row.pooling)
    assert (image.views, image.mlp, config.model.embed_dim) == (row.views, True, 1024)
    assert image.norm_rows == ("padded" if "release" in name else "real")
    assert _bert_rate(text) == row.bert_rate
    assert row.bert_rate is not None or text.word_dim == 300
    assert (loss.name, loss.mask_same_image, loss.margin) == (row.loss, False, 0.2)
    if row.loss != "adopt":
        assert (loss.reduction, str(loss.all_negatives)) == ("sum", "1 epoch")
    assert (training.epochs, training.batch_size, training.learning_rate) == (25, 128, 5e-4)
    assert (training.gradient_clip, str(training.warmup), training.weight_decay) == (2.0, "0 steps", row.weight_decay)
    assert (training.decay.name, training.decay.factor) == ("step", 0.1)
    assert [str(point) for point in training.decay.at] == [f"{epoch} epochs" for epoch in row.decay_epochs]
    # VSE+2AD's released code never masks or drops <start> and <end>, VSE-infinity's does.
    assert training.caption_augmentation == ("words" if name.startswith("vse_2ad") else True)
    assert training.size_augmentation == "region"


@pytest.mark.parametrize("name", sorted(BACKBONES))
def test_backbones(name: str, tmp_path: Path) -> None:
    config, row = preset(name, tmp_path, PICTURES), BACKBONES[name]
    image, text = config.model.image, config.model.text
    assert (image.pooling.name, text.pooling.name, config.loss.name) == (row.pooling, row.pooling, row.loss)
    assert (text.name, _bert_rate(text)) == (row.text, 0.1 if row.text == "bert" else None)
    assert (image.architecture or image.weights) == row.network
    assert (image.learning_rate_factor, image.image_size) == (row.rate, row.image_size)
    assert config.training.weight_decay == row.weight_decay


@pytest.mark.parametrize("name", sorted(name for name in BACKBONES if name.endswith(("grid", "grid_bert"))))
def test_grids_hold_the_cnn_for_an_epoch_and_start_again(name: str, tmp_path: Path) -> None:
    config = preset(name, tmp_path, PICTURES)
    image, training = config.model.image, config.training
    assert image.frozen_epochs == 1
    # The rise after the release is VSE-infinity's; nothing of VSE+2AD's has it.
    assert str(image.release_warmup) == ("0 steps" if name.startswith("vse_2ad") else "1 epoch")
    assert (training.size_augmentation, training.image_augmentation) == ("grid", True)
    assert training.epochs == 25


def test_mv_vse_weighs_its_two_bounds(tmp_path: Path) -> None:
    loss = preset("mv_vse", tmp_path).loss
    assert (loss.bound, loss.lam) == ("joint", 0.7)


def test_the_released_code_of_mv_vse(tmp_path: Path) -> None:
    config = preset("mv_vse_release", tmp_path)
    image, text, loss, training = config.model.image, config.model.text, config.loss, config.training
    assert (image.projections, image.views, image.mlp, image.pooling.name) == (2, 1, False, "max")
    assert (text.name, text.directions, text.pooling.name) == ("bigru", 1, "last")
    assert (loss.bound, loss.lam, loss.reduction, str(loss.all_negatives)) == ("journal", 0.7, "mean", "0 epochs")
    assert (training.epochs, training.decay.name, training.weight_decay) == (20, "none", 0.0)
    assert (training.size_augmentation, training.caption_augmentation) == ("none", False)


@pytest.mark.parametrize("name", [*VIDEOS, *HIERARCHICAL])
def test_videos_have_the_schedule_of_the_paper_and_the_rest_of_hgr_s_code(name: str, tmp_path: Path) -> None:
    graphs = "model: {text: {graphs: /graphs.json}}\n" if name in HIERARCHICAL else ""
    config = preset(name, tmp_path, GRIDS + graphs)
    image, text, loss, training = config.model.image, config.model.text, config.loss, config.training
    assert image.pooling.name == text.pooling.name == (VIDEOS | HIERARCHICAL)[name]
    assert (config.model.embed_dim, image.dropout, text.dropout, text.word_dim) == (1024, 0.2, 0.2, 300)
    if name in HIERARCHICAL:
        assert (image.name, text.name, text.layers, text.graph_dropout) == ("levels", "role_graphs", 1, 0.5)
    else:
        assert not image.mlp
    assert loss.name == ("hierarchical" if name in HIERARCHICAL else "triplet")
    assert (loss.margin, loss.reduction, str(loss.all_negatives)) == (0.2, "mean", "0 epochs")
    assert (training.epochs, training.batch_size, training.learning_rate, training.weight_decay) == (35, 128, 1e-4, 0)
    assert ([str(point) for point in training.decay.at], training.decay.factor) == (["25 epochs"], 0.1)
    assert (training.size_augmentation, training.caption_augmentation) == ("none", False)


def test_vse_2ad_uses_the_corrected_formulas_unless_others_are_asked_for(tmp_path: Path) -> None:
    names = {"vse_2ad": "corrected", "vse_2ad_release": "release", "vse_2ad_paper": "paper"}
    for name, variant in (*names.items(), ("vse_2ad_paper_bert", "paper")):
        config = preset(name, tmp_path)
        variants = {config.model.image.pooling.variant, config.model.text.pooling.variant, config.loss.variant}
        assert variants == {variant}
        assert (config.loss.temperature, config.loss.count) == (0.05, "adaptive")


def _bert_rate(text: Any) -> float | None:
    return text.learning_rate_factor if text.name == "bert" else None

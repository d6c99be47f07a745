"""Every figure of the papers by one command, from a small bundle of real parts and from recorded trainings."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from mlflow import MlflowClient
from transformers import AutoModel, AutoTokenizer, ResNetConfig, ViTConfig

from pipelines.config import PipelineConfig, load_config
from pipelines.inference.embedder import write_extractor
from pipelines.paper_figures import draw, of_models, of_runs, registered_model
from pipelines.paper_figures.registered_model import RegisteredModel
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.stage import StageError
from pipelines.tracking import PipelineRuns
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.datasets import Caption, Record
from preprocessing.features import TINY_RESNET
from tests.pipelines.tiny_bundle import IMAGES, write_tiny_bundle
from tests.pipelines.training.test_text_encoders import write_bert
from vse_core.digests import write_digests
from vse_core.models import build_model


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bundle(tmp_path_factory.mktemp("figures"))


@pytest.fixture
def config(work_dir: Path) -> PipelineConfig:
    return load_config(None, [f"work_dir={work_dir}"])


def trained(
    name: str,
    config: PipelineConfig,
    loss: str,
    metric: str,
    points: Sequence[tuple[int, float]] = (),
    split: str = "dev",
) -> RegisteredModel:
    """A model of which nothing is known but its training, with a metric at steps in the order of time."""
    identity = name.replace("/", "-")
    with PipelineRuns(config.experiment, identity) as runs, runs.parent, runs.child("train") as tracker:
        tracker.set_tags({"vse.fingerprint": identity, "vse.split": split})
        tracker.log_params({"loss": {"name": loss}})
        for step, value in points:
            tracker.log_metrics({metric: value}, step)
            time.sleep(0.002)  # MLflow tells milliseconds apart
    registered = RegisteredModel(name, config.tracking_uri)
    vars(registered).update(bundle=(name, Path("/nowhere")), _train_fingerprint=lambda: identity)
    return registered


@pytest.mark.parametrize(
    ("name", "files", "more"),
    [
        ("gpo-coefficients", ["gpo_coefficients.png"], []),
        ("caption-similarity", ["caption_similarity.png"], []),
        ("top-5", ["top_5_images.html", "top_5_captions.html"], []),
        ("relevance", ["relevance_1.png", "relevance_2.png"], ["--query", "red circle", "--query", "a blue star"]),
    ],
)
def test_a_command_writes_files_and_logs_them(
    bundle: Path,
    config: PipelineConfig,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    files: list[str],
    more: list[str],
) -> None:
    words = ["figures.py", name, "--set", f"work_dir={config.work_dir}", "--model", str(bundle), *more]
    monkeypatch.setattr(sys, "argv", words)
    draw.main()
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [file.name for file in written] == files
    for file in written:
        assert file.parent == config.work_dir / "figures" / name
        assert file.read_bytes().startswith({".png": b"\x89PNG", ".html": b"<!DOCTYPE html>"}[file.suffix])
    client = MlflowClient(config.tracking_uri)
    experiment = client.get_experiment_by_name(config.experiment.name)
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == (f"figure {name}", "FINISHED")
    logged = [Path(file.path).name for file in client.list_artifacts(run.info.run_id, "figures")]
    assert sorted(logged) == sorted(files)


@pytest.mark.parametrize(
    "words",
    [
        ["search-rows", "--model", "x"],
        ["top-5", "--model", "x", "--query", "dog"],
        ["top-5"],
    ],
)
def test_options_that_a_figure_does_not_take_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        draw._parser().parse_args(words)
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_the_retrieved_images_are_those_of_a_naive_search(bundle: Path, config: PipelineConfig) -> None:
    registered = RegisteredModel(str(bundle), config.tracking_uri)
    (figure,) = of_models.relevance_maps(registered, ["red circle"]).values()
    query = registered.embedder.embed_texts(["red circle"])[0]
    scores = sorted((float(image[0] @ query) for image in registered.gallery.images_BKD), reverse=True)[:3]
    titles = [axes.get_title() for axes in figure.axes[:3]]
    assert titles == [f"{place}. similarity {score:.3f}" for place, score in enumerate(scores, start=1)]
    regions = registered.embedder.embed_with_regions(registered.gallery.records[0].image_uri)
    assert len(registered.gallery.records) == IMAGES
    assert regions.places == (6, 6)


VIT = ViTConfig(
    image_size=64, patch_size=16, hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=16
)
CNN = ResNetConfig(embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], layer_type="basic")
PIXELS = {"bgr": False, "mean": [120.0] * 3, "std": [60.0] * 3}


@pytest.mark.parametrize(
    ("image", "extractor", "size"),
    [
        ({"name": "backbone", "image_size": 64, "architecture": CNN.to_dict(), "pixels": PIXELS}, "images", 4),
        ({"name": "backbone", "image_size": 64, "architecture": VIT.to_dict(), "pixels": PIXELS}, "images", 1 + 16),
        ({"mlp": False}, "pyramid", 30),
    ],
)
def test_coefficients_of_any_image_encoder(
    tmp_path: Path, config: PipelineConfig, image: dict[str, Any], extractor: str, size: int
) -> None:
    """Networks that are fine-tuned, and a set that is no square and has no boxes."""
    vocabulary = Vocabulary.build(["a red circle"], min_count=1)
    options = {"largest_side": 640} if extractor == "images" else {"weights": TINY_RESNET, "seed": 0}
    specification = {
        "feature_dim": None if extractor == "images" else 192,
        "vocabulary_size": len(vocabulary),
        "embed_dim": 8,
        "image": {"pooling": {"name": "gpo"}, **image},
        "text": {"pooling": {"name": "gpo"}, "word_dim": 4},
    }
    (tmp_path / "model").mkdir()
    build_model(**specification).save(tmp_path / "model")
    vocabulary.save(tmp_path / "model" / vocabulary.FILE)
    write_extractor(tmp_path / "extractor", extractor, options)
    record = Record("0", "scene://0/0", "dev", (Caption("0#0", "a red circle"),))
    Gallery(torch.ones(1, 1, 8), torch.ones(1, 8), (record,)).save(tmp_path / "gallery")
    write_digests(tmp_path, "model", "extractor", "gallery")
    (figure,) = of_models.gpo_coefficients(RegisteredModel(str(tmp_path), config)).values()
    lines = [line for line in figure.axes[0].get_lines() if len(line.get_xdata()) > 2]
    assert [len(line.get_xdata()) for line in lines] == [round(0.8 * size), size]


def test_captions_are_compared_as_a_sentence_encoder_embeds_them(
    bundle: Path, config: PipelineConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentence-BERT is the mean of a BERT's last states: computed here with transformers alone."""
    weights = write_bert(tmp_path / "bert")
    bert, tokenizer = AutoModel.from_pretrained(weights).eval(), AutoTokenizer.from_pretrained(weights)
    registered = RegisteredModel(str(bundle), config.tracking_uri)
    images: dict[int, list[torch.Tensor]] = {}
    for image, caption in registered.gallery.captions:
        with torch.no_grad():
            pieces = tokenizer(caption.text, return_tensors="pt", truncation=True, max_length=20)
            mean = bert(**pieces).last_hidden_state[0].mean(dim=0)
        images.setdefault(image, []).append(mean / mean.norm())
    naive = [float(a @ b) for vectors in images.values() for a, b in itertools.combinations(vectors, 2)]
    drawn: list[list[float]] = []
    monkeypatch.setattr(of_models, "plot_caption_similarity", lambda same_P, *_: drawn.append(same_P.tolist()))
    of_models.caption_similarity(registered, f"hf:{weights}")
    assert drawn[0] == pytest.approx(naive, abs=1e-5)
    with pytest.raises(StageError, match="--encoder hf:no/where: there is no folder"):
        of_models.caption_similarity(registered, "hf:no/where")


def test_a_query_that_cannot_be_embedded_is_named(bundle: Path, config: PipelineConfig) -> None:
    with pytest.raises(StageError, match="the query ' ' cannot be embedded: the text is empty"):
        of_models.relevance_maps(RegisteredModel(str(bundle), config.tracking_uri), ["dog", " "])


def test_a_model_of_one_view_has_no_attention_to_compare(bundle: Path, config: PipelineConfig) -> None:
    with pytest.raises(StageError, match="has one view of each image"):
        of_models.view_attention(RegisteredModel(str(bundle), config.tracking_uri))


def test_nothing_is_known_of_the_training_of_a_directory(bundle: Path, config: PipelineConfig) -> None:
    with pytest.raises(StageError, match="whose training is unknown: name a registered model"):
        of_runs.convergence([RegisteredModel(str(bundle), config.tracking_uri)])


def test_differing_pairs_are_the_first_of_each_image() -> None:
    images, views = [0, 0, 0, 1, 1, 2, 2, 2, 2], [1, 1, 1, 0, 2, 2, 2, 0, 1]
    assert of_models.differing_pairs(images, views) == [(3, 4), (5, 7)]


def test_convergence_takes_the_last_value_of_a_repeated_epoch(config: PipelineConfig) -> None:
    adopt = trained("a/1", config, "adopt", "dev/rsum", [(10, 100.0), (20, 7.0), (10, 90.0), (20, 240.0)])
    triplet = trained("t/4", config, "triplet", "dev/rsum", [(1, 50.0), (2, 60.0)])
    (axes,) = of_runs.convergence([adopt, triplet])["convergence.png"].axes
    lines = [line for line in axes.get_lines() if not line.get_label().startswith("_")]
    assert [list(line.get_ydata()) for line in lines] == [[90.0, 240.0], [50.0, 60.0]]
    assert lines[0].get_label().startswith("a/1 (loss adopt): best 240.0")
    with pytest.raises(StageError, match="different splits: dev and val"):
        of_runs.convergence([adopt, trained("v/1", config, "adopt", "dev/rsum", split="val")])
    with pytest.raises(StageError, match="x/1: MLflow has no RSUM"):
        of_runs.convergence([trained("x/1", config, "adopt", "dev/rsum")])


def test_negatives_are_those_that_were_logged(config: PipelineConfig) -> None:
    adopt = trained("a/1", config, "adopt", "train/negatives", [(10, 120.0), (20, 30.0), (30, 4.0)])
    (axes,) = of_runs.negatives([adopt])["negatives.png"].axes
    (line,) = axes.get_lines()
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([10, 20, 30], [120.0, 30.0, 4.0])
    with pytest.raises(StageError, match=r"as it does with loss.name adopt; this one is triplet"):
        of_runs.negatives([trained("t/1", config, "triplet", "train/negatives")])


def test_the_training_of_a_registered_model_is_found_by_its_tag(
    config: PipelineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PipelineRuns(config.experiment, "f" * 64) as runs, runs.parent, runs.child("train") as tracker:
        tracker.set_tags({"vse.fingerprint": "abc"})
        tracker.log_params({"loss": {"name": "adopt"}})
    tags = {"vse.train_fingerprint": "abc"}
    monkeypatch.setattr(
        registered_model, "tags_of", lambda name, version, _: tags if (name, version) == ("scenes", 7) else {}
    )
    model = RegisteredModel("scenes@champion", config.tracking_uri)
    vars(model)["bundle"] = ("scenes/7", Path("/nowhere"))
    assert model.training.data.params == {"loss.name": "adopt"}
    tags["vse.train_fingerprint"] = "another"
    again = RegisteredModel("scenes@champion", config.tracking_uri)
    vars(again)["bundle"] = ("scenes/7", Path("/nowhere"))
    with pytest.raises(StageError, match="has no run of its training"):
        _ = again.training
    del tags["vse.train_fingerprint"]
    with pytest.raises(StageError, match=r"has no tag vse\.train_fingerprint"):
        _ = again.training

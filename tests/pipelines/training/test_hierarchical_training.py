"""HGR-infinity in the pipeline: it learns, resumes, is the same on two processes; galleries rank as training does."""

import json
from pathlib import Path

import pytest

from pipelines.config import ConfigError, PipelineConfig, load_config
from pipelines.kinds import saved_kind
from pipelines.kinds.hierarchical_behaviour import role_graph_table
from pipelines.kinds.inputs import SplitData
from pipelines.retrieval.gallery import Gallery, GalleryError, build_gallery
from pipelines.runtime.stage import StageError
from pipelines.stages.runner import run_stages
from pipelines.training.trainer import Trainer
from preprocessing.captions.encoder import load_caption_encoder
from preprocessing.captions.role_graphs import SpacedWords
from preprocessing.shards.reader import ShardReader
from tests.pipelines.training.by_hand import SMALL, quiet_trainer
from tests.pipelines.training.test_trainer import KilledError, Recorder, losses_of, write_split
from tests.ranks import run_ranks
from vse_core.evaluation.recall import evaluate_retrieval
from vse_core.losses.hierarchical import VideoLevels
from vse_core.models import load_model
from vse_core.models.hierarchical import HierarchicalModel

NO_DROPOUT = ("model.image.dropout=0", "model.text.dropout=0", "model.text.graph_dropout=0")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    graphs = {}
    for split, images, seed in (("train", 23, 0), ("dev", 9, 1)):
        write_split(root / split, images, seed)
        graphs |= {text: graph_of(text) for text in texts_of(ShardReader(root / split, "grid"))}
    (root / "graphs.json").write_text(json.dumps(graphs))
    return root


def texts_of(reader: ShardReader) -> list[str]:
    return [caption["text"] for meta in reader.metas() for caption in meta["captions"]]


def graph_of(text: str) -> list:
    """The first word is an action, the second and third together an entity, the fourth another one of no action."""
    nodes = {
        "ROOT": {"role": "ROOT", "spans": list(range(len(text.split())))},
        "1": {"role": "V", "spans": [0]},
        "2": {"role": "ARG1", "spans": [1, 2]},
        "3": {"role": "NOUN", "spans": [3]},
    }
    return [nodes, [["1", "2", "ARG1"]]]


def make_config(shards: Path, *overrides: str) -> PipelineConfig:
    own = (f"model.text.graphs={shards}/graphs.json", "model.text.word_dim=8", "training.epochs=3")
    return load_config(None, ["preset=hgr_infty", *SMALL, *own, *overrides])


def make_trainer(config: PipelineConfig, shards: Path, out: Path, tracker: Recorder | None) -> Trainer:
    train, dev = SplitData(ShardReader(shards / "train", "grid")), SplitData(ShardReader(shards / "dev", "grid"))
    words = SpacedWords.build(texts_of(train.reader), 1)
    out.mkdir(exist_ok=True)
    return quiet_trainer(config, train, dev, words, out, tracker)


@pytest.fixture(scope="module")
def undisturbed(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    out = tmp_path_factory.mktemp("undisturbed")
    make_trainer(make_config(shards), shards, out, Recorder()).run()
    return losses_of(out)


def test_it_learns_and_its_gallery_is_ranked_as_in_training(shards: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    config = make_config(shards, "training.epochs=12", *NO_DROPOUT)
    history = make_trainer(config, shards, tmp_path / "run", recorder).run()
    best = max(history, key=lambda metrics: metrics["rsum"])
    assert best["rsum"] > history[0]["rsum"] + 50
    logged = set(recorder.metrics[0][1])
    assert logged >= {"train/event_similarity", "train/action_similarity", "train/entity_similarity"}
    (directory,) = (tmp_path / "run").glob("best-*")
    model, reader = load_model(directory), ShardReader(shards / "dev", "grid")
    assert isinstance(model, HierarchicalModel)
    kind = saved_kind(directory)
    words = load_caption_encoder(directory)
    inputs = kind.behaviour.text_inputs(config.model.text, SplitData(reader), words, model)
    gallery = build_gallery(model, reader, words, "", inputs, batch_size=4)
    gallery.save(tmp_path / "gallery")
    with pytest.raises(GalleryError, match="has no embeddings"):
        Gallery.load(tmp_path / "gallery")
    loaded = Gallery.load(tmp_path / "gallery", kind)
    assert isinstance(loaded.images, VideoLevels)
    found = evaluate_retrieval(loaded.images, loaded.texts, reader.caption_counts.tolist()).as_dict()
    assert found == pytest.approx(best)
    with pytest.raises(GalleryError, match="has no embeddings"):
        _ = loaded.images_BKD


@pytest.mark.parametrize("die_at", [2, 9])
def test_a_killed_run_goes_on_as_if_nothing_had_happened(
    undisturbed: list[float], shards: Path, tmp_path: Path, die_at: int
) -> None:
    with pytest.raises(KilledError):
        make_trainer(make_config(shards), shards, tmp_path, Recorder(die_at)).run()
    make_trainer(make_config(shards), shards, tmp_path, Recorder()).run()
    assert losses_of(tmp_path) == pytest.approx(undisturbed, abs=1e-6)


def run_rank(rank: int, shards: Path, out: Path, parallelism: str) -> None:
    config = make_config(shards, *NO_DROPOUT, f"training.parallelism={parallelism}")
    history = make_trainer(config, shards, out, Recorder() if rank == 0 else None).run()
    (out / f"history-{rank}.json").write_text(json.dumps(history))


@pytest.mark.integration
@pytest.mark.parametrize("parallelism", ["ddp", "fsdp2"])
def test_two_processes_have_the_losses_of_one(shards: Path, tmp_path: Path, parallelism: str) -> None:
    alone = make_trainer(make_config(shards, *NO_DROPOUT), shards, tmp_path / "one", Recorder()).run()
    (tmp_path / "two").mkdir()
    run_ranks(run_rank, 2, shards, tmp_path / "two", parallelism)
    assert losses_of(tmp_path / "two") == pytest.approx(losses_of(tmp_path / "one"), rel=1e-5, abs=1e-5)
    together = [json.loads((tmp_path / "two" / f"history-{rank}.json").read_text()) for rank in (0, 1)]
    assert together[0] == together[1]
    assert together[0][0]["rsum"] == pytest.approx(alone[0]["rsum"])


def test_captions_without_role_graphs_are_named(shards: Path, tmp_path: Path) -> None:
    (tmp_path / "graphs.json").write_text(json.dumps({"a": [{}, []]}))
    text = make_config(shards, f"model.text.graphs={tmp_path / 'graphs.json'}").model.text
    with pytest.raises(StageError, match=r"model\.text\.graphs: 115 of 115 captions have no role graph"):
        role_graph_table(text, SplitData(ShardReader(shards / "train", "grid")))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.caption_augmentation=true", "names the words of captions by their places"),
        (
            "loss={name: triplet, margin: 0.2, reduction: sum, mask_same_image: false, all_negatives: 1 epoch}",
            "goes with",
        ),
        ("evaluation.protocols=[retrieval, attack]", "attack need embeddings"),
        ("model.image={name: features, mlp: false, pooling: {name: gpo}}", "image.name 'levels' and text.name"),
    ],
)
def test_what_does_not_go_with_it(shards: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config(shards, override)


def test_a_stage_that_needs_embeddings_says_that_there_are_none(shards: Path, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="register: HGR's model has no embeddings"):
        run_stages(make_config(shards, f"work_dir={tmp_path}"), ["register"])

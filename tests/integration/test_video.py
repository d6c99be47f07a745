"""Video-text retrieval end to end: HGR's layout and raw videos through extraction and training to the protocols."""

import csv
import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from pipelines.config import PipelineConfig, load_config
from pipelines.evaluation import GALLERY
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.stage import manifest_in
from pipelines.stages.extract import plan as extract
from pipelines.stages.extract import run as extract_run
from pipelines.stages.extract.identity import extractor_options
from pipelines.stages.runner import plan_stages, run_stages
from preprocessing.loading.image_source import FeatureSource
from preprocessing.shards.index import read_index
from preprocessing.shards.reader import ShardReader
from vse_core.evaluation.members import compare
from vse_core.models import build_model

h5py = pytest.importorskip("h5py", reason="pip install h5py")
from tests.preprocessing.datasets.hgr_files import write_hgr  # noqa: E402 (needs h5py)

CONFIGS = Path(__file__).resolve().parents[2] / "pipelines" / "config" / "data"
WORDS = ["dog", "cat", "man", "child", "ball", "car", "runs", "jumps", "sings", "cooks", "outside", "slowly"]
SMALL = (
    "model.embed_dim=16",
    "model.text.word_dim=8",
    "vocabulary.min_count=1",
    "training.epochs=3",
    "training.batch_size=32",
    "training.learning_rate=0.01",
    "training.gpus_per_worker=0",
)


def made_videos(count: int, first: int) -> tuple[dict[str, list[str]], dict[str, np.ndarray]]:
    """Captions and frames by name: frames tell the words of the captions, and many videos share a caption."""
    rng = np.random.default_rng(first)
    captions, frames = {}, {}
    for number in range(first, first + count):
        chosen = np.sort(rng.choice(len(WORDS), 2, replace=False))
        captions[f"video{number}"] = [f"a {WORDS[chosen[0]]} {WORDS[chosen[1]]}", f"{WORDS[chosen[1]]}"]
        noise = 0.1 * rng.standard_normal((rng.integers(2, 30), len(WORDS)))
        frames[f"video{number}"] = np.eye(len(WORDS))[rng.choice(chosen, len(noise))] + noise
    return captions, frames


def write_role_graphs(root: Path, captions: Iterable[list[str]]) -> Path:
    """The last word of each caption as its action, the one before as its entity, if there is one."""
    graphs = {}
    for caption in itertools.chain.from_iterable(captions):
        words = len(caption.split())
        nodes = {"ROOT": {"role": "ROOT", "spans": list(range(words))}, "1": {"role": "V", "spans": [words - 1]}}
        if words > 1:
            nodes["2"] = {"role": "ARG0", "spans": [words - 2]}
        graphs[caption] = [nodes, [["1", "2", "ARG0"]]]
    path = root / "annotation" / "RET" / "sent2rolegraph.augment.json"
    path.write_text(json.dumps(graphs))
    return path


def evaluated(config: PipelineConfig) -> tuple[dict[str, float], Gallery]:
    directory = plan_stages(config)["evaluate"].directory
    return manifest_in(directory)["metrics"], Gallery.load(directory / GALLERY, config.kind)


def recall_at_1(gallery: Gallery) -> tuple[float, float]:
    """Both ways over the set of different sentences, query by query; ties go to the later item."""
    texts = [caption.text for _, caption in gallery.captions]
    sentences = list(dict.fromkeys(texts))
    first_S = [texts.index(sentence) for sentence in sentences]
    sims_BS = compare(gallery.images, gallery.texts[first_S]).numpy()
    own = [{caption.text for caption in record.captions} for record in gallery.records]
    found = [sentences[best(sims_S)] in own[place] for place, sims_S in enumerate(sims_BS)]
    right = [text in own[best(sims_B)] for text, sims_B in zip(sentences, sims_BS.T, strict=True)]
    return 100 * float(np.mean(found)), 100 * float(np.mean(right))


def best(similarities: np.ndarray) -> int:
    return len(similarities) - 1 - int(np.argmax(similarities[::-1]))


@pytest.mark.nightly
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("name", ["msr_vtt", "msr_vtt_hgr"])
def test_the_released_layout_from_its_files_to_the_protocol(name: str, work_dir: Path, tmp_path: Path) -> None:
    """The configurations for MSR-VTT, on few and small videos; validation has as many as the published one."""
    train, train_frames = made_videos(150, 0)
    validation, validation_frames = made_videos(497, 1000)
    root = write_hgr(tmp_path / "MSRVTT", {"trn": train, "val": validation}, {**train_frames, **validation_frames})
    overrides = [f"work_dir={work_dir}", f"dataset.root={root}", "features.largest_set=20", *SMALL]
    overrides += ["model.text.word_vectors=null"]  # GloVe's file is not here
    stages = ["extract", "train", "evaluate"]
    if name == "msr_vtt_hgr":
        graphs = write_role_graphs(root, [*train.values(), *validation.values()])
        overrides += [f"model.text.graphs={graphs}", "model.text.graph_dropout=0", "training.epochs=6"]
        stages += ["index", "register"]  # which are left out: there are no embeddings to search
    config = load_config(CONFIGS / f"{name}.yaml", overrides)
    run_stages(config, stages)
    metrics, gallery = evaluated(config)
    assert metrics["msr_vtt/sentences"] == len({text for texts in validation.values() for text in texts})
    assert (metrics["msr_vtt/v2t_r01"], metrics["msr_vtt/t2v_r01"]) == pytest.approx(recall_at_1(gallery), abs=0.3)
    # Of 497 videos a few share each sentence; by chance one query in about fifty would be right.
    assert metrics["msr_vtt/v2t_r10"] > 50


def encoded(colours: Sequence[tuple[int, int, int]]) -> bytes:
    from io import BytesIO

    av = pytest.importorskip("av", reason="pip install av")
    buffer = BytesIO()
    with av.open(buffer, "w", format="mp4") as output:
        stream = output.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
        for colour in colours:
            frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), colour, dtype=np.uint8), format="rgb24")
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    return buffer.getvalue()


def test_raw_videos_with_a_table_of_captions(tmp_path: Path) -> None:
    """The configuration for one's own videos, with the small network that ships; a damaged video is skipped."""
    rng = np.random.default_rng(0)
    (tmp_path / "videos").mkdir()
    for split, count in (("train", 6), ("dev", 2)):
        with (tmp_path / f"{split}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["video", "caption"])
            for number in range(count):
                name = f"{split}{number}.mp4"
                (tmp_path / "videos" / name).write_bytes(encoded([tuple(rng.integers(0, 255, 3))] * (3 + number)))
                table.writerows([[name, f"a {WORDS[number]}"], [name, f"the {WORDS[number]} moves"]])
    (tmp_path / "videos" / "train3.mp4").write_bytes(b"no video")
    config = load_config(
        CONFIGS / "videos.yaml",
        [
            f"work_dir={tmp_path}/work",
            f"dataset.images={tmp_path}/videos",
            f"dataset.tables={{train: {tmp_path}/train.csv, dev: {tmp_path}/dev.csv}}",
            "features={extractor: frames, weights: tiny_resnet, random_seed: 0, frames: 5}",
            *SMALL,
        ],
    )
    options = extractor_options(config.features)
    for split in extract.splits_of(config):
        actor = extract_run._Extraction("frames", options, config.features.batch_size, 1, 60.0, config.mirror)
        actor.prepare()
        for spec in split.specs(split.missing()):
            list(actor.work(spec))
    train, dev = (ShardReader(split.directory.path, config.features.member) for split in extract.splits_of(config))
    assert [train.meta(place)["image_id"] for place in range(len(train))] == [f"train{n}.mp4" for n in (0, 1, 2, 4, 5)]
    assert [len(train.features(place)) for place in range(len(train))] == [3, 4, 5, 5, 5]
    (index,) = (read_index(path) for split in extract.splits_of(config)[:1] for path in split.shards)
    assert [item["image_id"] for item in index.skipped] == ["train3.mp4"]
    assert [caption["text"] for caption in dev.meta(1)["captions"]] == ["a cat", "the cat moves"]
    model = build_model(train.feature_dim, 20, **config.model.specification()).eval()
    videos_B1D = model.encode_images(*FeatureSource(train, 0, "none", 0.0).unaugmented(range(5)))
    assert videos_B1D.shape == (5, 1, 16)

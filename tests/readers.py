"""Every reader of files from outside: how a valid file is written, how it is read, and the errors that it declares."""

from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from pipelines.config.layers import read_layer
from pipelines.inference.embedder import EXTRACTOR, _extractor_options
from pipelines.inference.feature_check import TRAINED_ON, require_features, write_feature_key
from pipelines.kinds import saved_kind
from pipelines.kinds.component_embedder import PARSER, read_parser, write_parser
from pipelines.retraining.journal import LAST, Journal
from pipelines.retrieval.gallery import EMBEDDINGS, ITEMS, Gallery, GalleryError
from pipelines.runtime.stage import MANIFEST, StageError, manifest_in
from pipelines.schema.error import ConfigError
from pipelines.stages.extract.reuse import _read as read_newest
from pipelines.tracking.runs import _recorded
from pipelines.tracking.tracker import PENDING, read_pending
from pipelines.tuning.results import Results, Trial, read_results, write_results
from preprocessing.captions import SubwordTokenizer, TokenizerError, Vocabulary, VocabularyError
from preprocessing.captions.adversarial.files import (
    Adversarial,
    AdversarialError,
    read_adversarials,
    write_adversarials,
)
from preprocessing.captions.graph_shards import counts_path, read_counts, read_graphs
from preprocessing.captions.pools import Pools, PoolsError
from preprocessing.captions.role_graphs import RoleGraphError, read_role_graphs
from preprocessing.captions.word_vectors import WordVectors, WordVectorsError, read_word_vectors
from preprocessing.datasets import DatasetError, build_dataset
from preprocessing.datasets.coco import read_instances
from preprocessing.datasets.crisscrossed import read_crisscrossed
from preprocessing.datasets.record import Caption, Record
from preprocessing.extraction.split_hashes import DataManifest
from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError
from preprocessing.features.importers import FORMS, entries, open_source
from preprocessing.features.precomputed import PrecomputedExtractor, _open_array
from preprocessing.features.weights import read_weights
from preprocessing.reading import parse_json
from preprocessing.shards import ShardError, verify_shard
from preprocessing.shards.reader import ShardReader, read_arrays, read_records
from preprocessing.shards.writer import Sample, write_shard
from preprocessing.storage import Mirror
from preprocessing.storage.atomic import write_json_atomic
from tests.preprocessing.datasets.hgr_files import write_hgr
from vse_core.models import build_model, load_model
from vse_core.models.released import CheckpointError, read_released
from vse_core.training.state import Progress, load_state, optimizer_tensors, read_progress, save_state

SPECIFICATION = {
    "feature_dim": 4,
    "vocabulary_size": 8,
    "embed_dim": 4,
    "image": {"pooling": {"name": "mean"}, "mlp": False},
    "text": {"pooling": {"name": "mean"}, "word_dim": 3},
}
WORDS = ["<pad>", "<start>", "<end>", "<unk>", "a", "dog", "runs", "<mask>"]


@dataclass(frozen=True)
class Reader:
    """A reader.

    Attributes:
        file: name of the file that is damaged.
        write: writes it, and what else is needed, into a folder.
        read: reads the folder to the end.
        errors: that the reader declares.
    """

    file: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]
    errors: type[Exception] | tuple[type[Exception], ...]


def text(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content, encoding="utf-8")


def data(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def image(name: str) -> Callable[[Path], object]:
    """Write an empty file into a folder of images: readers ask whether it is there."""

    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()

    return write


def both(*writers: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda folder: [write(folder) for write in writers]


def dataset(name: str, split: str = "train", **options: Any) -> Callable[[Path], object]:
    """Read all records of a data set whose options name files of the folder by `{}/NAME`."""

    def placed(value: Any, folder: Path) -> Any:
        if isinstance(value, dict):
            return {key: placed(item, folder) for key, item in value.items()}
        return value.replace("{}", str(folder)) if isinstance(value, str) else value

    return lambda folder: list(build_dataset(name, **placed(options, folder)).records(split))


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def pth(content: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


def tar(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(("x" * 120 + "/" if name == "long" else "") + name.replace("_", "."))
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def write_shards(folder: Path) -> None:
    graph = {"objects": [["dogs", "dog", "dogs", 0, 1, False, []]], "relations": []}
    samples = []
    for number in range(3):
        captions = [{"caption_id": str(number), "text": "dogs", "tokens": ["dogs"], "graph": graph, "problem": None}]
        meta = {"image_id": str(number), "image": f"{number}.jpg", "split": "dev", "captions": captions}
        array = np.full((2, 4), number, dtype=np.float16)
        samples.append(Sample(f"{number:08d}", {"grid": array}, meta, grids={"grid": (1, 2, 0)}))
    write_shard(folder / "shard-00000.tar", samples, "f")
    counters = {key: {"x": 1} for key in ("without", "problems", "objects", "attributes", "relations")}
    write_json_atomic(counts_path(folder / "shard-00000.tar"), {"captions": 3, **counters})


def read_shards(folder: Path) -> None:
    reader = ShardReader(folder, "grid")
    for image in range(len(reader)):
        reader.features(image), reader.grid(image), reader.meta(image)
    list(read_records(folder / "shard-00000.tar"))
    list(read_arrays(folder / "shard-00000.tar", ["grid"]))
    list(read_graphs(folder / "shard-00000.tar"))
    verify_shard(folder / "shard-00000.tar", deep=True)


def write_model(folder: Path) -> None:
    torch.manual_seed(0)
    build_model(**SPECIFICATION).save(folder)


def optimizer() -> torch.optim.Optimizer:
    layer = torch.nn.Linear(2, 2)
    adam = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 2)).sum().backward()
    adam.step()
    return adam


def write_gallery(folder: Path) -> None:
    images, texts = torch.full((1, 1, 4), 0.5), torch.full((1, 4), 0.5)
    record = Record("1", "1.jpg", "dev", (Caption("1#0", "a dog"),))
    Gallery(images, texts, (record,)).save(folder)


def write_tokenizer(folder: Path) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "dog", "##s"]
    tokenizer = Tokenizer(models.WordPiece({piece: place for place, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.enable_truncation(512)
    tokenizer.enable_padding()
    tokenizer.save(str(folder / "tokenizer.json"))


def write_hdf5(folder: Path) -> None:
    import h5py

    with h5py.File(folder / "x.hdf5", "w") as file:
        file["1"] = np.ones((2, 4), np.float32)
        file["2/features"], file["2/boxes"] = np.ones((2, 4), np.float32), np.ones((2, 4), np.float32)


def write_parquet(folder: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"image": ["a.jpg", "b.jpg"], "caption": [["a dog"], ["a cat", "two"]]})
    parquet.write_table(table, folder / "x.parquet")


def imported(form: str, name: str) -> Callable[[Path], object]:
    assert form in FORMS
    return lambda folder: list(entries(open_source(folder / name, form)))


def read_precomputed(folder: Path) -> None:
    _open_array.cache_clear()
    PrecomputedExtractor().load(f"{folder / 'x.npy'}#1")


def manifest(folder: Path) -> object:
    found = manifest_in(folder)
    return found["counts"]["images"], found["best"]


FLOATS = base64.b64encode(np.ones(8, "<f4").tobytes()).decode()
FLICKR = {"images": "{}", "tokens": "{}/t.txt", "splits": {"train": "{}/l.txt"}}
KARPATHY = {
    "images": [
        {"cocoid": 1, "split": "train", "filename": "a.jpg", "sentences": [{"sentid": 1, "raw": "a dog"}]},
        {"cocoid": 2, "split": "val", "filename": "b.jpg", "filepath": "x", "sentences": [{"sentid": 2, "raw": "a"}]},
    ]
}
COCO = {
    "images": [{"id": 1, "file_name": "a.jpg"}],
    "annotations": [{"id": 5, "image_id": 1, "caption": "a dog", "category_id": 3}],
    "categories": [{"id": 3, "name": "dog"}],
}
CXC = "caption1,caption2,agg_score\nCOCO_val2014:sentid:1,COCO_val2014:sentid:2,1.5\n"
CXC_IMAGES = "image1,image2,agg_score\nCOCO_val2014_000000000001.jpg,COCO_val2014_000000000002.jpg,1.5\n"
CXC_BOTH = "caption,image,agg_score\nCOCO_val2014:sentid:1,COCO_val2014_000000000002.jpg,1.5\n"
ROLE_GRAPH = {
    "a dog runs": [{"n1": {"role": "V", "spans": [2]}, "n2": {"role": "ARG0", "spans": [0, 1]}}, [["n1", "n2", "ARG0"]]]
}
RUNS = {"uri": "sqlite:///x", "experiment_id": "1", "runs": {"parent": "a"}}
PENDING_CONTENT = {
    "params": {"a": "1"},
    "tags": {"b": "2"},
    "inputs": [{"name": "x", "context": "training"}],
    "metrics": [["loss", 1.5, 1, 2]],
    "status": "FAILED",
    "run": {"uri": "sqlite:///x", "experiment_id": "1", "run_id": "a", "spool": "/x"},
}
TRIAL = Trial("t1", {"training.epochs": 3}, 0, 200.5, 2, 3, False)
HASHES = np.arange(3, dtype=np.uint64)

READERS: dict[str, Reader] = {
    "configuration": Reader(
        "c.yaml",
        text("c.yaml", "a: {b: [1, x], c: 2024-01-01}\nd: &e {f: 1.5}\ng: *e\n"),
        lambda f: read_layer(f / "c.yaml"),
        ConfigError,
    ),
    "flickr tokens": Reader(
        "t.txt",
        both(text("t.txt", "a.jpg#0\ta dog\n"), text("l.txt", "a.jpg\n")),
        dataset("flickr", **FLICKR),
        DatasetError,
    ),
    "flickr list": Reader(
        "l.txt",
        both(text("t.txt", "a.jpg#0\ta dog\n"), text("l.txt", "a.jpg\n")),
        dataset("flickr", **FLICKR),
        DatasetError,
    ),
    "karpathy": Reader(
        "k.json",
        text("k.json", json.dumps(KARPATHY)),
        dataset("karpathy", images="{}", annotations="{}/k.json"),
        DatasetError,
    ),
    "coco": Reader(
        "c.json",
        text("c.json", json.dumps(COCO)),
        dataset("coco", images={"train": "{}"}, annotations={"train": "{}/c.json"}),
        DatasetError,
    ),
    "instances": Reader(
        "c.json", text("c.json", json.dumps(COCO)), lambda f: read_instances(f / "c.json"), DatasetError
    ),
    "csv": Reader(
        "x.csv",
        text("x.csv", 'image,caption\na.jpg,"a, dog"\nb.jpg,x\n'),
        dataset("table", images="{}", tables={"train": "{}/x.csv"}),
        DatasetError,
    ),
    "csv.gz": Reader(
        "x.csv.gz",
        data("x.csv.gz", gzip.compress(b"image,caption\na.jpg,a dog\n" + b"b.jpg,a cat\n" * 9, mtime=0)),
        dataset("table", images="{}", tables={"train": "{}/x.csv.gz"}),
        DatasetError,
    ),
    "parquet": Reader(
        "x.parquet", write_parquet, dataset("table", images="{}", tables={"train": "{}/x.parquet"}), DatasetError
    ),
    "image archives": Reader(
        "x.tar",
        data("x.tar", tar(a_jpg=b"x", a_txt=b"a dog", b_jpg=b"y", b_json=b'{"caption": "two"}', long=b"z")),
        dataset("webdataset", folders={"train": "{}"}),
        DatasetError,
    ),
    "hgr captions": Reader(
        "annotation/RET/ref_captions.json",
        lambda f: write_hgr(f, {"trn": {"video1": ["a dog", "a cat"], "video/2": ["two"]}}),
        dataset("hgr", "trn", root="{}", network="resnet152.pth"),
        DatasetError,
    ),
    "hgr names": Reader(
        "public_split/trn_names.npy",
        lambda f: write_hgr(f, {"trn": {"video1": ["a dog", "a cat"], "video/2": ["two"]}}),
        dataset("hgr", "trn", root="{}", network="resnet152.pth"),
        DatasetError,
    ),
    "precomputed captions": Reader(
        "dev_caps.txt",
        both(
            text("dev_caps.txt", "a\n" * 5),
            text("dev_ids.txt", "1\n"),
            data("dev_ims.npy", npy(np.ones((1, 2, 4), "f4"))),
        ),
        dataset("precomputed", "dev", root="{}"),
        DatasetError,
    ),
    "precomputed features": Reader(
        "dev_ims.npy",
        both(
            text("dev_caps.txt", "a\n" * 5),
            text("dev_ids.txt", "1\n"),
            data("dev_ims.npy", npy(np.ones((1, 2, 4), "f4"))),
        ),
        dataset("precomputed", "dev", root="{}"),
        DatasetError,
    ),
    "crisscrossed": Reader(
        "sts_val.csv",
        both(text("sts_val.csv", CXC), text("sis_val.csv", CXC_IMAGES), text("sits_val.csv", CXC_BOTH)),
        lambda f: read_crisscrossed(f, "dev"),
        DatasetError,
    ),
    "shard": Reader("shard-00000.tar", write_shards, read_shards, ShardError),
    "sidecar": Reader("shard-00000.json", write_shards, read_shards, ShardError),
    "counts of graphs": Reader(
        "counts-00000.json", write_shards, lambda f: read_counts(f / "shard-00000.tar"), ShardError
    ),
    "vocabulary": Reader(
        "v.json",
        lambda f: Vocabulary(WORDS).save(f / "v.json"),
        lambda f: Vocabulary.load(f / "v.json"),
        VocabularyError,
    ),
    "tokenizer": Reader(
        "tokenizer.json",
        write_tokenizer,
        lambda f: SubwordTokenizer.load(f / "tokenizer.json").encode("dogs"),
        TokenizerError,
    ),
    "word vectors": Reader(
        "x.txt",
        text("x.txt", "dog 0.5 1e-3\nruns 1 2\n"),
        lambda f: read_word_vectors(f / "x.txt", Vocabulary(WORDS), 2),
        WordVectorsError,
    ),
    "kept word vectors": Reader(
        "x.safetensors",
        lambda f: WordVectors(np.arange(2), np.ones((2, 3), np.float32), 0.5).save(f / "x.safetensors"),
        lambda f: WordVectors.load(f / "x.safetensors"),
        WordVectorsError,
    ),
    "role graphs": Reader(
        "g.json", text("g.json", json.dumps(ROLE_GRAPH)), lambda f: read_role_graphs(f / "g.json"), RoleGraphError
    ),
    "pools": Reader(
        "p.json",
        lambda f: Pools(("dog",), ("red",), ("on",)).save(f / "p.json"),
        lambda f: Pools.load(f / "p.json"),
        PoolsError,
    ),
    "adversarial captions": Reader(
        "a.jsonl",
        lambda f: write_adversarials(f / "a.jsonl", [Adversarial("1", "1#0", "object", "a dog", ("a cat",))]),
        lambda f: read_adversarials(f / "a.jsonl"),
        AdversarialError,
    ),
    "butd tsv": Reader(
        "x.tsv", text("x.tsv", f"1\t640\t480\t2\t{FLOATS}\t{FLOATS}\n"), imported("butd_tsv", "x.tsv"), ExtractorError
    ),
    "npz": Reader(
        "x/1.npz",
        lambda f: (
            (f / "x").mkdir(exist_ok=True),
            (f / "x/1.npz").write_bytes(
                npz(x=np.ones((2, 4), "f4"), bbox=np.ones((2, 4), "f4"), num_bbox=2, image_w=9, image_h=9)
            ),
        ),
        imported("npz", "x"),
        ExtractorError,
    ),
    "hdf5": Reader("x.hdf5", write_hdf5, imported("hdf5", "x.hdf5"), ExtractorError),
    "npy rows": Reader("x.npy", data("x.npy", npy(np.ones((2, 3, 4), "f4"))), read_precomputed, ImageError),
    "safetensors weights": Reader(
        "x.safetensors",
        lambda f: save_file({"a": np.ones(3, "f4")}, f / "x.safetensors"),
        lambda f: read_weights(f / "x.safetensors"),
        ExtractorError,
    ),
    "PyTorch weights": Reader(
        "x.pth", data("x.pth", pth({"a": torch.ones(3)})), lambda f: read_weights(f / "x.pth"), ExtractorError
    ),
    "released checkpoint": Reader(
        "x.pth",
        data("x.pth", pth({"model": [{"fc.weight": torch.ones(2, 2)}, {"fc.bias": torch.ones(2)}], "epoch": 1})),
        lambda f: read_released(f / "x.pth"),
        CheckpointError,
    ),
    "model": Reader("model.safetensors", write_model, load_model, ValueError),
    "model's specification": Reader("model.json", write_model, lambda f: (load_model(f), saved_kind(f)), ValueError),
    "kind of a model": Reader("model.json", write_model, saved_kind, ValueError),
    "optimiser": Reader(
        "optimizer.safetensors",
        lambda f: save_state(optimizer_tensors(optimizer()), Progress(), f),
        lambda f: load_state(optimizer(), f),
        ValueError,
    ),
    "progress": Reader(
        "progress.json",
        lambda f: save_state(optimizer_tensors(optimizer()), Progress(1, 2, 3, ({"rsum": 4.5},), {"scale": 2.0}), f),
        lambda f: (progress := read_progress(f), progress.best_epoch),
        ValueError,
    ),
    "embeddings": Reader(EMBEDDINGS, write_gallery, Gallery.load, (GalleryError, ValueError)),
    "items of a gallery": Reader(ITEMS, write_gallery, Gallery.load, (GalleryError, ValueError)),
    "extractor": Reader(
        EXTRACTOR,
        text(EXTRACTOR, '{"name": "grid", "options": {"weights": {"folder": "weights"}}}'),
        lambda f: _extractor_options(f, "cpu"),
        (ExtractorError, ValueError),
    ),
    "parser of a model": Reader(PARSER, lambda f: write_parser(f, "en"), read_parser, ValueError),
    "features of a model": Reader(
        TRAINED_ON, lambda f: write_feature_key(f, "grid"), lambda f: require_features("grid", f), StageError
    ),
    "manifest": Reader(
        MANIFEST,
        lambda f: write_json_atomic(f / MANIFEST, {"counts": {"images": 3}, "best": "best-001", "fingerprint": "a"}),
        manifest,
        StageError,
    ),
    "runs of a pipeline": Reader(
        "run.json", text("run.json", json.dumps(RUNS)), lambda f: _recorded(f / "run.json"), ()
    ),
    "unsent records": Reader(
        PENDING, text(PENDING, json.dumps(PENDING_CONTENT)), lambda f: read_pending(f / PENDING), ()
    ),
    "newest version of a split": Reader(
        "n.json",
        text("n.json", '{"fingerprint": "a", "contents": {"x": "y"}, "taken": ["x"]}'),
        lambda f: read_newest((f / "n.json").read_bytes(), f / "n.json"),
        (),
    ),
    "journal": Reader(
        LAST, text(LAST, '{"identity": "a", "outcome": "promoted"}'), lambda f: Journal(f, Mirror(f)).last(), StageError
    ),
    "hashes of a split": Reader(
        "a/train.npz",
        lambda f: ((f / "a").mkdir(exist_ok=True), DataManifest(HASHES, HASHES).save(f / "a/train.npz")),
        lambda f: Journal(f, Mirror(f)).data("a", "train"),
        StageError,
    ),
    "table of a search": Reader(
        "t.csv", lambda f: write_results(Results([TRIAL]), f / "t.csv"), lambda f: read_results(f / "t.csv"), StageError
    ),
    "JSON": Reader(
        "x.json",
        text("x.json", '{"a": [1, -2.5e3, "\\u00e9", null, true]}'),
        lambda f: parse_json((f / "x.json").read_bytes()),
        ValueError,
    ),
}

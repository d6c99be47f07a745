"""Every reader of files from outside: how a valid file is written, how it is read, and the errors that it declares."""

from __future__ import annotations

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
from pipelines.stages.extract.shards import _read as read_newest
from pipelines.tracking.runs import _recorded
from pipelines.tracking.tracker import PENDING, read_pending
from pipelines.training.trained_pairs import FILE as PAIRS
from pipelines.training.trained_pairs import _trained_pairs
from pipelines.tuning.results import Trial, read_results, write_results
from preprocessing.captions.adversarial.files import (
    Adversarial,
    AdversarialError,
    read_adversarials,
    write_adversarials,
)
from preprocessing.captions.graph_shards import counts_path, read_captions, read_counts
from preprocessing.captions.pools import Pools, PoolsError
from preprocessing.captions.role_graphs import RoleGraphError, RoleGraphTable, read_role_graphs
from preprocessing.captions.subwords import SubwordTokenizer, TokenizerError
from preprocessing.captions.vocabulary import Vocabulary, VocabularyError
from preprocessing.captions.word_vectors import WordVectors, WordVectorsError, read_word_vectors
from preprocessing.datasets import DatasetError, build_dataset
from preprocessing.datasets.crisscrossed import read_crisscrossed
from preprocessing.datasets.karpathy import read_instances
from preprocessing.datasets.record import Caption, Record
from preprocessing.extraction.split_hashes import DataManifest
from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError
from preprocessing.features.precomputed import PrecomputedExtractor, _open_array, _open_hdf5
from preprocessing.features.weights import read_weights
from preprocessing.reading import parse_json
from preprocessing.shards.index import ShardError, verify_shard
from preprocessing.shards.reader import ShardReader, read_records
from preprocessing.shards.writer import Sample, write_shard
from preprocessing.storage.atomic import write_json_atomic
from preprocessing.storage.mirror import Mirror
from tests.preprocessing.datasets.hgr_files import write_hgr
from vse_core.models import build_model, load_model
from vse_core.models.released import CheckpointError, read_released
from vse_core.tensor_files import TensorFileError
from vse_core.training.state import Progress, load_state, optimizer_tensors, read_progress, save_state

SPECIFICATION = {
    "feature_dim": 4,
    "vocabulary_size": 8,
    "embed_dim": 4,
    "image": {"pooling": {"name": "mean"}, "mlp": False},
    "text": {"pooling": {"name": "mean"}, "word_dim": 3},
}
WORDS = ["<pad>", "<start>", "<end>", "<unk>", "a", "dog", "runs", "<mask>"]


Errors = type[Exception] | tuple[type[Exception], ...]


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
    errors: Errors = ()


def files(**contents: str | bytes) -> Callable[[Path], object]:
    """Write files, whose names have two underscores for a dot."""
    named = {name.replace("__", "."): content for name, content in contents.items()}
    as_bytes = {name: content.encode() if isinstance(content, str) else content for name, content in named.items()}
    return lambda folder: [(folder / name).write_bytes(content) for name, content in as_bytes.items()]


def alone(file: str, content: str | bytes, read: Callable[[Path], object], errors: Errors = ()) -> Reader:
    """A reader of one file with a content."""
    return Reader(file, files(**{file: content}), lambda folder: read(folder / file), errors)


def saved(file: str, save: Callable[[Path], object], read: Callable[[Path], object], errors: Errors) -> Reader:
    """A reader of one file, and its writer."""
    return Reader(file, lambda folder: save(folder / file), lambda folder: read(folder / file), errors)


def dataset(name: str, split: str = "train", **options: Any) -> Callable[[Path], object]:
    """Read all records of a data set whose options name files of the folder by `{}/NAME`."""

    def placed(value: Any, folder: Path) -> Any:
        if isinstance(value, dict):
            return {key: placed(item, folder) for key, item in value.items()}
        return value.replace("{}", str(folder)) if isinstance(value, str) else value

    return lambda folder: list(build_dataset(name, **placed(options, folder)).records(split))


def table(file: str, write: Callable[[Path], object]) -> Reader:
    """A table of captions."""
    return Reader(file, write, dataset("table", images="{}", tables={"train": f"{{}}/{file}"}), DatasetError)


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
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
        samples.append(Sample(f"{number:08d}", {"grid": array}, meta))
    write_shard(folder / "shard-00000.tar", samples, "f")
    counters = {key: {"x": 1} for key in ("without", "problems", "objects", "attributes", "relations")}
    write_json_atomic(counts_path(folder / "shard-00000.tar"), {"captions": 3, **counters})


def read_shards(folder: Path) -> None:
    reader = ShardReader(folder, "grid")
    for image in range(len(reader)):
        reader.features(image), reader.meta(image)
    list(read_records(folder / "shard-00000.tar"))
    list(read_captions(folder))
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


def write_state(folder: Path) -> None:
    save_state(optimizer_tensors(optimizer()), Progress(1, 2, 3, ({"rsum": 4.5},), {"scale": 2.0}), folder)


def write_gallery(folder: Path) -> None:
    images, texts = torch.full((1, 1, 4), 0.5), torch.full((1, 4), 0.5)
    record = Record("1", "1.jpg", "dev", (Caption("1#0", "a dog"),))
    Gallery(images, texts, (record,)).save(folder)


def write_tokenizer(path: Path) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "dog", "##s"]
    tokenizer = Tokenizer(models.WordPiece({piece: place for place, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.enable_truncation(512)
    tokenizer.enable_padding()
    tokenizer.save(str(path))


def write_hdf5(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file["1"] = np.ones((2, 4), np.float32)


def write_parquet(folder: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"image": ["a.jpg", "b.jpg"], "caption": [["a dog"], ["a cat", "two"]]})
    parquet.write_table(table, folder / "x.parquet")


def read_precomputed(path: Path) -> None:
    _open_array.cache_clear()
    _open_hdf5.cache_clear()
    PrecomputedExtractor().load(f"{path}#1")


def manifest(folder: Path) -> object:
    found = manifest_in(folder)
    return found["counts"]["images"], found["best"]


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
    "metrics": [["loss", 1.5, 1, 2]],
    "status": "FAILED",
    "run": {"uri": "sqlite:///x", "experiment_id": "1", "run_id": "a", "spool": "/x"},
}
TRIAL = Trial("t1", {"training.epochs": 3}, 0, 200.5, 2, 3, False)
HASHES = np.arange(3, dtype=np.uint64)

_FLICKR = files(t__txt="a.jpg#0\ta dog\n", l__txt="a.jpg\n"), dataset("flickr", **FLICKR), DatasetError
_HGR = (
    lambda folder: write_hgr(folder, {"trn": {"video1": ["a dog", "a cat"], "video/2": ["two"]}}),
    dataset("hgr", "trn", root="{}", network="resnet152.pth"),
    DatasetError,
)
_PRECOMPUTED = (
    files(dev_caps__txt="a\n" * 5, dev_ids__txt="1\n", dev_ims__npy=npy(np.ones((1, 2, 4), "f4"))),
    dataset("precomputed", "dev", root="{}"),
    DatasetError,
)

READERS: dict[str, Reader] = {
    "configuration": alone("c.yaml", "a: {b: [1, x], c: 2024-01-01}\nd: &e {f: 1.5}\ng: *e\n", read_layer, ConfigError),
    "flickr tokens": Reader("t.txt", *_FLICKR),
    "flickr list": Reader("l.txt", *_FLICKR),
    "karpathy": Reader(
        "k.json",
        files(k__json=json.dumps(KARPATHY)),
        dataset("karpathy", images="{}", annotations="{}/k.json"),
        DatasetError,
    ),
    "instances": alone("c.json", json.dumps(COCO), read_instances, DatasetError),
    "csv": table("x.csv", files(x__csv='image,caption\na.jpg,"a, dog"\nb.jpg,x\n')),
    "csv.gz": table(
        "x.csv.gz",
        files(x__csv__gz=gzip.compress(b"image,caption\na.jpg,a dog\n" + b"b.jpg,a cat\n" * 9, mtime=0)),
    ),
    "parquet": table("x.parquet", write_parquet),
    "image archives": Reader(
        "x.tar",
        files(x__tar=tar(a_jpg=b"x", a_txt=b"a dog", b_jpg=b"y", b_json=b'{"caption": "two"}', long=b"z")),
        dataset("webdataset", folders={"train": "{}"}),
        DatasetError,
    ),
    "hgr captions": Reader("annotation/RET/ref_captions.json", *_HGR),
    "hgr names": Reader("public_split/trn_names.npy", *_HGR),
    "precomputed captions": Reader("dev_caps.txt", *_PRECOMPUTED),
    "precomputed features": Reader("dev_ims.npy", *_PRECOMPUTED),
    "crisscrossed": Reader(
        "sts_val.csv",
        files(sts_val__csv=CXC, sis_val__csv=CXC_IMAGES, sits_val__csv=CXC_BOTH),
        lambda folder: read_crisscrossed(folder, "dev"),
        DatasetError,
    ),
    "shard": Reader("shard-00000.tar", write_shards, read_shards, ShardError),
    "sidecar": Reader("shard-00000.json", write_shards, read_shards, ShardError),
    "counts of graphs": Reader(
        "counts-00000.json", write_shards, lambda f: read_counts(f / "shard-00000.tar"), ShardError
    ),
    "vocabulary": saved("v.json", Vocabulary(WORDS).save, Vocabulary.load, VocabularyError),
    "tokenizer": saved(
        "tokenizer.json", write_tokenizer, lambda path: SubwordTokenizer.load(path).encode("dogs"), TokenizerError
    ),
    "word vectors": alone(
        "x.txt",
        "dog 0.5 1e-3\nruns 1 2\n",
        lambda path: read_word_vectors(path, Vocabulary(WORDS), 2),
        WordVectorsError,
    ),
    "kept word vectors": saved(
        "x.safetensors",
        WordVectors(np.arange(2), np.ones((2, 3), np.float32), 0.5).save,
        WordVectors.load,
        WordVectorsError,
    ),
    "role graphs": alone(
        "g.json",
        json.dumps(ROLE_GRAPH),
        lambda path: RoleGraphTable.build(ROLE_GRAPH, read_role_graphs(path)),
        RoleGraphError,
    ),
    "pools": saved("p.json", Pools(("dog",), ("red",), ("on",)).save, Pools.load, PoolsError),
    "adversarial captions": saved(
        "a.jsonl",
        lambda path: write_adversarials(path, [Adversarial("1", "1#0", "object", "a dog", ("a cat",))]),
        read_adversarials,
        AdversarialError,
    ),
    "hdf5": saved("x.hdf5", write_hdf5, read_precomputed, (ExtractorError, ImageError)),
    "npy rows": alone("x.npy", npy(np.ones((2, 3, 4), "f4")), read_precomputed, ImageError),
    "safetensors weights": saved(
        "x.safetensors", lambda path: save_file({"a": np.ones(3, "f4")}, path), read_weights, ExtractorError
    ),
    "PyTorch weights": alone("x.pth", pth({"a": torch.ones(3)}), read_weights, ExtractorError),
    "released checkpoint": alone(
        "x.pth",
        pth({"model": [{"fc.weight": torch.ones(2, 2)}, {"fc.bias": torch.ones(2)}], "epoch": 1}),
        read_released,
        (CheckpointError, TensorFileError),
    ),
    "model": Reader("model.safetensors", write_model, load_model, ValueError),
    "model's specification": Reader("model.json", write_model, lambda f: (load_model(f), saved_kind(f)), ValueError),
    "optimiser": Reader("optimizer.safetensors", write_state, lambda f: load_state(optimizer(), f), ValueError),
    "progress": Reader(
        "progress.json", write_state, lambda f: (progress := read_progress(f), progress.best_epoch), ValueError
    ),
    "embeddings": Reader(EMBEDDINGS, write_gallery, Gallery.load, (GalleryError, ValueError)),
    "items of a gallery": Reader(ITEMS, write_gallery, Gallery.load, (GalleryError, ValueError)),
    "extractor": Reader(
        EXTRACTOR,
        lambda f: (f / EXTRACTOR).write_text('{"name": "grid", "options": {"weights": {"folder": "weights"}}}'),
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
    "runs of a pipeline": alone("run.json", json.dumps(RUNS), _recorded),
    "unsent records": alone(PENDING, json.dumps(PENDING_CONTENT), read_pending),
    "newest version of a split": alone(
        "n.json",
        '{"fingerprint": "a", "contents": {"x": "y"}, "taken": ["x"]}',
        lambda path: read_newest(path.read_bytes(), path),
    ),
    "journal": alone(
        LAST,
        '{"identity": "a", "outcome": "promoted"}',
        lambda path: Journal(path.parent, Mirror(path.parent)).last(),
        StageError,
    ),
    "hashes of a split": Reader(
        "a/train.npz",
        lambda f: ((f / "a").mkdir(exist_ok=True), DataManifest(HASHES, HASHES).save(f / "a/train.npz")),
        lambda f: Journal(f, Mirror(f)).data("a", "train"),
        StageError,
    ),
    "pairs of a model": Reader(
        PAIRS, lambda f: DataManifest(captions=HASHES).save(f / PAIRS), _trained_pairs, StageError
    ),
    "table of a search": saved("t.csv", lambda path: write_results([TRIAL], path), read_results, StageError),
    "JSON": alone(
        "x.json", '{"a": [1, -2.5e3, "\\u00e9", null, true]}', lambda path: parse_json(path.read_bytes()), ValueError
    ),
}

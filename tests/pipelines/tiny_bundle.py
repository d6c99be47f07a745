"""A bundle small enough for unit tests, of real parts: generated scenes, a random network, an untrained model."""

from pathlib import Path
from typing import Any

import torch

from pipelines.inference.embedder import Embedder, write_extractor
from pipelines.kinds.component_embedder import write_parser
from pipelines.registry.models import BUNDLE_PARTS, CORRECTION
from pipelines.retrieval.correction import Correction
from pipelines.retrieval.faiss_index import GalleryIndex, index_origin
from pipelines.retrieval.gallery import Gallery, build_gallery
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.datasets import Record, build_dataset
from preprocessing.features import TINY_RESNET, build_extractor
from preprocessing.shards.reader import ShardReader
from preprocessing.shards.writer import Sample, write_shard
from vse_core.digests import write_digests
from vse_core.models import build_model, load_model
from vse_core.similarity import unit_length

IMAGES = 6
EMBED_DIM = 16
OPTIONS = {"weights": TINY_RESNET, "seed": 0}


def write_tiny_bundle(directory: Path, seed: int = 0, *, is_corrected: bool = False) -> Path:
    """Write model, extractor, gallery and index of six scenes; the gallery goes through real shards."""
    records = _scenes()
    extractor = build_extractor("grid", **OPTIONS)
    features = extractor([extractor.load(record.image_uri) for record in records])
    shards = directory / "shards"
    shards.mkdir(parents=True)
    samples = []
    for index, (record, found) in enumerate(zip(records, features, strict=True)):
        captions = [{"caption_id": caption.caption_id, "text": caption.text} for caption in record.captions]
        meta = {"image_id": record.image_id, "image": record.image_uri, "split": record.split, "captions": captions}
        samples.append(Sample(f"{index:08d}", {"grid": found.features}, meta))
    write_shard(shards / "shard-00000.tar", samples, "tiny")
    image, text = {"pooling": {"name": "gpo"}, "mlp": True}, {"pooling": {"name": "gpo"}, "word_dim": 12}
    vocabulary = _write_model(directory, seed, image, text)
    embedded = gallery(directory, shards, vocabulary)
    if is_corrected:
        embedded = _corrected(directory, embedded)
    return _write_gallery(directory, embedded)


def _corrected(directory: Path, embedded: Gallery) -> Gallery:
    """Write a correction by a bank near the first half of the gallery, and return the gallery with its biases."""
    bank = [
        unit_length(vectors[: len(vectors) // 2] + 0.3 * torch.rand_like(vectors[: len(vectors) // 2]))
        for vectors in (embedded.images_BKD, embedded.texts_CD)
    ]
    correction = Correction(bank[0].half().float(), bank[1].half().float(), 0.1, "learned in training")
    embedded = correction.of_gallery(embedded)
    correction.calibrated(embedded).save(directory / CORRECTION)
    return embedded


def write_tiny_unified_bundle(directory: Path) -> Path:
    """Write a bundle of six scenes whose model is UniVSE, with the parser that ships."""
    image = {"name": "regions", "pooling": {"name": "kmax", "k": 10}}
    _write_model(directory, 0, image, {"name": "components", "word_dim": 12, "modifier_dim": 4})
    write_parser(directory / "model", None)
    embedder = Embedder(directory / "model", directory / "extractor", device="cpu")
    records = _scenes()
    images_BKD = embedder.embed_images([record.image_uri for record in records])
    texts_CD = embedder.embed_texts([caption.text for record in records for caption in record.captions])
    return _write_gallery(directory, Gallery(images_BKD, texts_CD, records))


def gallery(directory: Path, shards: Path, vocabulary: Vocabulary) -> Gallery:
    """Embed the shards with the model of the bundle."""
    return build_gallery(
        load_model(directory / "model"), ShardReader(shards, "grid"), vocabulary, root="", batch_size=4
    )


def _scenes() -> tuple[Record, ...]:
    return tuple(build_dataset("scenes", seed=0, images={"dev": IMAGES}).records("dev"))


def _write_model(directory: Path, seed: int, image: dict[str, Any], text: dict[str, Any]) -> Vocabulary:
    vocabulary = Vocabulary.build((caption.text for record in _scenes() for caption in record.captions), min_count=1)
    torch.manual_seed(seed)
    (directory / "model").mkdir(parents=True)
    build_model(192, len(vocabulary), EMBED_DIM, image, text).save(directory / "model")
    vocabulary.save(directory / "model" / vocabulary.FILE)
    write_extractor(directory / "extractor", "grid", OPTIONS)
    return vocabulary


def _write_gallery(directory: Path, embedded: Gallery) -> Path:
    embedded.save(directory / "gallery")
    index = GalleryIndex.build(embedded.images_BKD, embedded.texts_CD, embedded.biases)
    index.save(directory / "index", index_origin(directory / "model", directory / "gallery"))
    write_digests(directory, *BUNDLE_PARTS, *([CORRECTION] if embedded.biases is not None else []))
    return directory

"""Costs of an image, a caption and a training pair: bytes on disk and in memory, floating-point operations.

`python -m infra.sizing` multiplies these figures up to data of any size. Bytes and operations do not depend on the
machine; the times, which the result names with it, do.

Run: python tests/benchmarks/sizing.py
"""

from __future__ import annotations

import argparse
import gc
import json
import shlex
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from reader import RESULTS, machine
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from preprocessing.features.butd.detector import Detector, Size
from preprocessing.features.butd.variants import VARIANTS
from preprocessing.loading.sampler import BatchSampler
from preprocessing.shards.reader import ShardReader
from preprocessing.shards.writer import Sample, write_shard
from preprocessing.storage import Entry
from preprocessing.storage.atomic import write_json_atomic
from preprocessing.storage.mirror import sidecar_path
from vse_core.losses import build_loss
from vse_core.models import build_model
from vse_core.training.optim import build_optimizer
from vse_core.training.step import LocalBatch, training_step

REGIONS, WIDTH, DIM, WORDS, WORD_PIECES, VOCABULARY = 36, 2048, 1024, 13, 15, 8481
SHARD_SIZE = 500
# COCO's captions have 52 characters on average.
CAPTION = "A man in a red shirt rides a brown horse on a beach."
URI = "train2014/COCO_train2014_000000123456.jpg"
SKIPPED = {
    "key": "00123456",
    "image_id": "000000123456",
    "image": URI,
    "reason": "cannot be decoded: it is cut short",
}
# A photograph of 640 x 480 with its short side brought to 600; proposals of Faster R-CNN that are looked at.
DETECTION_SIZE, PROPOSALS = (600, 800), 300

Made = TypeVar("Made")


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "sizing.json", help="JSON file for the result")
    parser.add_argument("--images", type=int, default=20_000, help="images of which sidecars are read")
    parser.add_argument("--captions", type=int, default=2_000_000, help="captions of which an epoch's order is drawn")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of the step whose operations are counted")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    result: dict[str, Any] = {
        "command": shlex.join(["python", *sys.argv]),
        "machine": machine(),
        "shards": shards(),
        "reader": reader(arguments.images),
        "sampler": sampler(arguments.captions),
        "listing": listing(arguments.images),
        "extractors": extractors(),
        "models": models(arguments.pairs),
    }
    write_json_atomic(arguments.output, result)
    print(json.dumps(result, indent=1))


def shards() -> dict[str, Any]:
    """Bytes of a full shard beyond its arrays, an image's part and a caption's, and of its sidecar."""
    with tempfile.TemporaryDirectory() as folder:
        beyond, sidecar = {}, 0.0
        for captions in (1, 5):
            path = Path(folder) / "shard-00000.tar"
            index = write_shard(path, _samples(SHARD_SIZE, captions, (REGIONS, WIDTH)), "sizing")
            beyond[captions] = index.bytes / SHARD_SIZE - REGIONS * WIDTH * 2
            sidecar = sidecar_path(path).stat().st_size / SHARD_SIZE
    caption = (beyond[5] - beyond[1]) / 4
    return {
        "feature": f"{REGIONS}x{WIDTH}",
        "images": SHARD_SIZE,
        "bytes_beyond_the_array": {"image": round(beyond[1] - caption, 1), "caption": round(caption, 1)},
        "sidecar_bytes_an_image": round(sidecar, 1),
        "skipped_bytes_an_image": len(json.dumps(SKIPPED)),
    }


def reader(images: int) -> dict[str, Any]:
    """Memory that an open reader holds and takes at most while it opens, and how long that takes, for an image.

    Neither depends on the features, which stay in the tars: these here are as small as can be.
    """
    with tempfile.TemporaryDirectory() as folder:
        for shard in range(images // SHARD_SIZE):
            path = Path(folder) / f"shard-{shard:05d}.tar"
            write_shard(path, _samples(SHARD_SIZE, 5, (1, 1), shard * SHARD_SIZE), "sizing")
        opened, kept, peak = _memory_of(lambda: ShardReader(Path(folder), "grid"))
        assert len(opened) == images
        seconds = _seconds_of(lambda: ShardReader(Path(folder), "grid"))
    return {
        "images": images,
        "kept_bytes_an_image": round(kept / images, 1),
        "peak_bytes_an_image": round(peak / images, 1),
        "microseconds_an_image": round(seconds / images * 1e6, 2),
    }


def sampler(captions: int) -> dict[str, Any]:
    """Memory of an epoch's order, kept and while it is drawn, and how long that takes, for a caption."""
    drawn, kept, peak = _memory_of(lambda: _order(captions))
    assert drawn.num_samples == captions
    seconds = _seconds_of(lambda: _order(captions))
    return {
        "captions": captions,
        "kept_bytes_a_caption": round(kept / captions, 1),
        "peak_bytes_a_caption": round(peak / captions, 1),
        "nanoseconds_a_caption": round(seconds / captions * 1e9, 1),
    }


def listing(images: int) -> dict[str, Any]:
    """Memory that the sizes and versions of images on S3 take while a split is identified, for an image."""

    def table() -> dict[str, list[int | str]]:
        entries = (Entry(URI.replace("123456", f"{i:06d}"), 100_000 + i, f"{i:032x}") for i in range(images))
        return {entry.name: [entry.bytes, entry.version] for entry in entries}

    listed, kept, _ = _memory_of(table)
    return {"images": len(listed), "kept_bytes_an_image": round(kept / images, 1)}


def extractors() -> dict[str, Any]:
    """Operations of one image through each network; nothing is computed, shapes alone go through."""
    import torchvision
    from transformers import ViTConfig, ViTModel

    with torch.device("meta"):
        return {
            "regions 36x2048, bottom-up attention": {"input": "600x800", "flops_an_image": _detection()},
            "grid 49x2048, ResNet-50": {
                "input": "224x224",
                "flops_an_image": _forward(torchvision.models.resnet50(), _pixels(224)),
            },
            "grid 256x2048, ResNeXt-101 32x8d": {
                "input": "512x512",
                "flops_an_image": _forward(torchvision.models.resnext101_32x8d(), _pixels(512)),
            },
            "patches 197x768, ViT-B/16": {
                "input": "224x224",
                "flops_an_image": _forward(ViTModel(ViTConfig(attn_implementation="eager")), _pixels(224)),
            },
        }


def models(pairs: int) -> dict[str, Any]:
    """Parameters, and operations and saved activations of a training step for a pair, of models over regions."""
    from transformers import BertConfig, BertModel

    from vse_core.encoders.pretrained import architecture_of

    bert = {"name": "bert", "architecture": architecture_of(BertModel(BertConfig(), add_pooling_layer=False))}
    bigru = {"name": "bigru", "word_dim": 300}
    return {
        "regions and BiGRU": {"tokens": WORDS, **_step(pairs, bigru, WORDS)},
        "regions and BERT": {"tokens": WORD_PIECES, **_step(pairs, bert, WORD_PIECES)},
    }


def _samples(count: int, captions: int, shape: tuple[int, int], first: int = 0) -> Iterator[Sample]:
    array = np.zeros(shape, dtype=np.float16)
    for number in range(first, first + count):
        texts = [{"caption_id": f"{number:06d}#{i}", "text": CAPTION} for i in range(captions)]
        meta = {"image_id": f"{number:012d}", "image": URI, "split": "train", "captions": texts}
        yield Sample(f"{number:08d}", {"grid": array}, meta)


def _order(captions: int) -> BatchSampler:
    drawn = BatchSampler(captions, 128, seed=0)
    drawn.batch(0, 0)
    return drawn


def _memory_of(make: Callable[[], Made]) -> tuple[Made, int, int]:
    """Return the result, the bytes that it keeps and the peak on the way, without NumPy's buffers for sorting."""
    make()  # imports and caches are nobody's
    gc.collect()
    tracemalloc.start()
    made = make()
    gc.collect()
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return made, kept, peak


def _seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _pixels(side: int) -> Tensor:
    return torch.empty(1, 3, side, side)


def _forward(network: nn.Module, pixels: Tensor) -> int:
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        network.eval()(pixels)
    return int(counter.get_total_flops())


def _detection() -> int:
    """The feature map, the proposals from it, and the last stage on each proposal."""
    detector = Detector(Size(), VARIANTS["caffe"], REGIONS, REGIONS)
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        map_1FHW, _ = detector.backbone(torch.empty(1, 3, *DETECTION_SIZE), [DETECTION_SIZE])
        detector.proposal_generator.rpn_head(map_1FHW)
        x_RFHW = torch.empty(PROPOSALS, map_1FHW.shape[1], 14, 14)
        for block in detector.roi_heads.res5:
            x_RFHW = block(x_RFHW)
        features_RF = x_RFHW.mean(dim=(2, 3))
        predictor = detector.roi_heads.box_predictor
        predictor.bbox_pred(features_RF)
        predictor.attributes(features_RF, predictor.objects(features_RF))
    return int(counter.get_total_flops())


def _step(pairs: int, text: dict[str, Any], tokens: int) -> dict[str, Any]:
    gpo = {"name": "gpo"}
    image = {"name": "features", "mlp": True, "pooling": gpo}
    model = build_model(WIDTH, VOCABULARY, DIM, image=image, text={**text, "pooling": gpo})
    optimizer = build_optimizer(model, 5e-4, 0.01)
    inputs = (
        torch.rand(pairs, REGIONS, WIDTH),
        torch.full((pairs,), REGIONS),
        torch.randint(4, VOCABULARY, (pairs, tokens)),
        torch.full((pairs,), tokens),
    )
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        share = LocalBatch(inputs, torch.arange(pairs), [pairs])
        training_step(model, build_loss("triplet"), optimizer, [share], 2.0)
    flops = int(counter.get_total_flops())
    if text["name"] == "bigru" and not _sees_gru():
        flops += 3 * _gru_flops(model.text_encoder.rnn, pairs, tokens)  # type: ignore[arg-type]
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "flops_a_pair": round(flops / pairs),
        "activation_bytes_a_pair": round(sum(saved.values()) / pairs),
        "embedding": DIM,
    }


def _gru_flops(rnn: nn.GRU, sequences: int, tokens: int) -> int:
    """Operations of a forward pass: three gates, each a product with the input and one with the state."""
    directions = 2 if rnn.bidirectional else 1
    gates = 3 * rnn.hidden_size * (rnn.input_size + rnn.hidden_size)
    return 2 * gates * directions * sequences * tokens


def _sees_gru() -> bool:
    """Return whether the counter looks into a GRU, which is one operation to some backends and many to others."""
    rnn = nn.GRU(8, 8, batch_first=True)
    packed = nn.utils.rnn.pack_padded_sequence(torch.rand(2, 3, 8), torch.tensor([3, 3]), batch_first=True)
    with FlopCounterMode(display=False) as counter:
        rnn(packed)
    counted = int(counter.get_total_flops())
    if counted not in (0, _gru_flops(rnn, 2, 3)):
        raise RuntimeError(f"a GRU of {_gru_flops(rnn, 2, 3)} operations was counted as {counted}")
    return counted > 0


if __name__ == "__main__":
    main()

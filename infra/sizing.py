"""Estimate storage, memory and time for a data set, from the first shard to an epoch on 64 GPUs.

    python -m infra.sizing --images 5000000 --captions-per-image 2 --feature 49x2048

Bytes, memory and operations are multiplied up from measured figures (sizing.json). The speed of a GPU is an
estimate: operations over a share of its peak.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.runtime.cli import CommandParser, number_in, run_command

FIGURES: dict[str, Any] = json.loads(Path(__file__).with_name("sizing.json").read_text(encoding="utf-8"))
# What is assumed: the bfloat16 operations a second of a GPU (25 % of an A100's peak), the pairs that each computes in a
# step, and machines of 8 GPUs with a disk, links between GPUs and a network of these bytes (a second).
GPU_FLOPS, PAIRS_PER_GPU, GPUS_PER_MACHINE = 0.25 * 312e12, 128, 8
DISK_BYTES, LINK_BYTES, NETWORK_BYTES = 10e12, 300e9, 100e9 / 8
GPUS = (1, 8, 64)
SHARD_SIZE = 500


@dataclass(frozen=True)
class Workload:
    """The size of a data set: an image's features are `rows` vectors of `width` in float16; each caption is a pair."""

    images: int
    captions_per_image: int
    rows: int = 36
    width: int = 2048

    @property
    def pairs(self) -> int:
        """Training pairs of an epoch."""
        return self.images * self.captions_per_image

    @property
    def array_bytes(self) -> int:
        """Bytes of an image's features."""
        return self.rows * self.width * 2

    @property
    def shard_bytes(self) -> float:
        """Bytes of all shards: arrays, headers, padding, records."""
        beyond = FIGURES["sizing"]["shards"]["bytes_beyond_the_array"]
        return self.images * float(self.array_bytes + beyond["image"] + beyond["caption"] * self.captions_per_image)


def training_step(load: Workload, model: str, gpus: int) -> tuple[float, str]:
    """Estimate the seconds of a training step, and name the longest part.

    That is the "arithmetic" of the model on the local batch, and of the loss on the local batch against the global one;
    the "kernels" that one GPU replays, or the "host" that starts those of several; "reading" of the next batch;
    "fetching" of shards that no disk holds; or the "exchange" with the other GPUs, which comes on top of the others.
    """
    facts = FIGURES["sizing"]["models"][model]
    batch = PAIRS_PER_GPU * gpus
    # The similarities, and two matrix products of the backward pass: of the rank's images, and of its captions.
    loss = 3 * 2 * min(2, gpus) * PAIRS_PER_GPU * batch * facts["embedding"]
    is_fetched, started = load.shard_bytes > DISK_BYTES, "kernels" if gpus == 1 else "host"
    seconds = {
        "arithmetic": (PAIRS_PER_GPU * facts["flops_a_pair"] + loss) / GPU_FLOPS,
        # Of 128 pairs; only a training on one GPU replays its steps from CUDA graphs.
        started: FIGURES[f"{started}_seconds_a_step"][model],
        # Measured with features of 36 x 2048; every machine fetches all shards of a window.
        "reading": PAIRS_PER_GPU / (FIGURES["samples_per_second"] * 36 * 2048 * 2 / load.array_bytes),
        "fetching": load.shard_bytes * batch / load.pairs / NETWORK_BYTES if is_fetched else 0.0,
    }
    longest = max(seconds.values())
    seconds["exchange"] = _exchanged(facts, gpus) / (LINK_BYTES if gpus <= GPUS_PER_MACHINE else NETWORK_BYTES)
    return longest + seconds["exchange"], max(seconds, key=lambda part: seconds[part])


def _exchanged(facts: dict[str, Any], gpus: int) -> float:
    """Return a rank's bytes: the others' embeddings that it receives, and gradients that it sends around a ring."""
    embeddings = 2 * PAIRS_PER_GPU * gpus * facts["embedding"] * 4
    return float((gpus - 1) / gpus) * float(embeddings + 2 * (embeddings + 4 * facts["parameters"]))


def rows(load: Workload) -> dict[str, str]:
    """Return the lines of the table for a data set."""
    facts = FIGURES["sizing"]
    reader, sampler = facts["reader"], facts["sampler"]
    lines = {
        "images": f"{load.images:,}",
        "training pairs of an epoch": f"{load.pairs:,}",
        f"features of an image, {load.rows} x {load.width}": bytes_text(load.array_bytes),
        f"shards of {SHARD_SIZE} images": f"{-(-load.images // SHARD_SIZE):,}",
        "storage: shards": bytes_text(load.shard_bytes),
        "storage: sidecars": bytes_text(load.images * facts["shards"]["sidecar_bytes_an_image"]),
    }
    for name, network in facts["extractors"].items():
        hours = load.images * network["flops_an_image"] / GPU_FLOPS / 3600
        lines[f"extraction, GPU-hours (estimate): {name}, {network['input']} pixels"] = number_text(hours)
    decoding, parsing = load.images / FIGURES["decoded_per_second"], load.pairs / FIGURES["captions_per_second"]
    lines |= {
        "decoding for the extraction, core-hours": number_text(decoding / 3600),
        "parsing of captions (UniVSE, VSE-C), core-hours": number_text(parsing / 3600),
        "memory of the driver: index of the shards": bytes_text(load.images * reader["kept_bytes_an_image"]),
        "memory of the driver: peak while opening them": bytes_text(load.images * reader["peak_bytes_an_image"]),
        "memory of a rank: order of the epoch, without windows": bytes_text(
            load.pairs * sampler["kept_bytes_a_caption"]
        ),
        "memory of a rank: peak while drawing it": bytes_text(load.pairs * sampler["peak_bytes_a_caption"]),
        "time to open the shards, once": _time(load.images * reader["microseconds_an_image"] * 1e-6),
        "time to draw the order of an epoch": _time(load.pairs * sampler["nanoseconds_a_caption"] * 1e-9),
    }
    for model, figures in facts["models"].items():
        # The weights and AdamW's two moments; the first process has a copy in memory (FSDP2: each of its shares).
        lines[f"checkpoint, on disk and in memory: {model}"] = bytes_text(12 * figures["parameters"])
        for gpus in GPUS:
            seconds, limit = training_step(load, model, gpus)
            epochs = number_text(3600 * PAIRS_PER_GPU * gpus / seconds / load.pairs)
            lines[f"epochs an hour (estimate): {model}, {gpus} GPU{'s' * (gpus > 1)}"] = f"{epochs} ({limit})"
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table for the data set that the command line describes."""
    parser = CommandParser(prog="python -m infra.sizing")
    parser.add_argument("--images", type=_count, required=True, metavar="N")
    parser.add_argument("--captions-per-image", type=_count, default=5, metavar="N")
    parser.add_argument("--feature", type=_shape, default=(36, 2048), metavar="ROWSxWIDTH", help="default: 36x2048")
    options = parser.parse_args(arguments)
    lines = rows(Workload(options.images, options.captions_per_image, *options.feature))
    width = max(map(len, lines))
    sys.stdout.write("".join(f"{key:<{width}}  {value}\n" for key, value in lines.items()))


def _count(text: str) -> int:
    """Read a number that may be written with commas, 1,000,000."""
    return number_in(int, 1, 10**12)(text.replace(",", ""))


def _shape(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not ROWSxWIDTH, such as 36x2048")
    return int(match[1]), int(match[2])


def bytes_text(value: float) -> str:
    """Format bytes in the largest unit that fits."""
    for unit, factor in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{number_text(value / factor)} {unit}"
    return f"{value:.0f} bytes"


def _time(seconds: float) -> str:
    for unit, factor in (("h", 3600.0), ("min", 60.0)):
        if seconds >= factor:
            return f"{number_text(seconds / factor)} {unit}"
    return f"{number_text(seconds)} s"


def number_text(value: float) -> str:
    """Format with two significant digits, or all digits of a larger integer part."""
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


if __name__ == "__main__":
    run_command(main)

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
from typing import Any, Self

from pipelines.runtime.cli import CommandParser, number_in, run_command

FIGURES = Path(__file__).with_name("sizing.json")
GPUS = (1, 8, 64)


@dataclass(frozen=True)
class Workload:
    """The size of a data set: an image's features are `rows` vectors of `width` in float16; each caption is a pair."""

    name: str
    images: int
    captions_per_image: int
    rows: int = 36
    width: int = 2048
    shard_size: int = 500

    @property
    def pairs(self) -> int:
        """Training pairs of an epoch."""
        return self.images * self.captions_per_image

    @property
    def array_bytes(self) -> int:
        """Bytes of an image's features."""
        return self.rows * self.width * 2

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.images // self.shard_size)


@dataclass(frozen=True)
class Machines:
    """The hardware: the assumptions of every estimate.

    Attributes:
        peak_tflops: of a GPU, bfloat16 without sparsity, from its data sheet (NVIDIA A100: 312).
        utilisation: assumed share of the peak.
        pairs_per_gpu: local batch of a training step; the global batch grows with the GPUs.
        disk_tb: disk of a machine, 10^12 bytes.
        link_gbs: bandwidth between GPUs of a machine, one way, 10^9 bytes a second (A100's NVLink: 300).
        network_gbit: bandwidth between machines, 10^9 bits a second.
    """

    peak_tflops: float = 312.0
    utilisation: float = 0.25
    pairs_per_gpu: int = 128
    gpus_per_machine: int = 8
    disk_tb: float = 10.0
    link_gbs: float = 300.0
    network_gbit: float = 100.0

    @property
    def flops(self) -> float:
        """Assumed operations a second of a GPU."""
        return self.peak_tflops * 1e12 * self.utilisation

    def bytes_per_second(self, gpus: int) -> float:
        """Return the bandwidth of the slowest link of a ring through the GPUs."""
        return self.link_gbs * 1e9 if gpus <= self.gpus_per_machine else self.network_gbit * 1e9 / 8


@dataclass(frozen=True)
class Measured:
    """The measured figures.

    `sizing` holds bytes, memory and operations; `samples_per_second` are samples of
    36 x 2048 that a rank reads in random order from the page cache, on two cores; `captions_per_second` are those
    that one core parses, `decoded_per_second` photographs of 500 pixels that one brings to 224. `host_seconds_a_step`
    are those of a step on an H200 that waited for its host, by model.
    """

    sizing: dict[str, Any]
    samples_per_second: float
    captions_per_second: float
    decoded_per_second: float
    host_seconds_a_step: dict[str, float]

    @classmethod
    def load(cls, path: Path = FIGURES) -> Self:
        """Read the figures that ship with the package."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    def shard_bytes(self, load: Workload) -> float:
        """Return the bytes of all shards: arrays, headers, padding, records."""
        beyond = self.sizing["shards"]["bytes_beyond_the_array"]
        return load.images * float(load.array_bytes + beyond["image"] + beyond["caption"] * load.captions_per_image)

    def read_per_second(self, load: Workload) -> float:
        """Return the images a second that one rank reads, in proportion to their bytes."""
        return self.samples_per_second * 36 * 2048 * 2 / load.array_bytes


@dataclass(frozen=True)
class Step:
    """The estimate of a training step.

    Attributes:
        gathered: bytes that a rank receives of the others' embeddings.
        reduced: bytes that a rank sends of gradients, those of the gathered embeddings and of the parameters.
        limit: the longest part: "arithmetic", "host" (which starts a step's kernels one by one), "reading", "fetching"
            of shards that no disk holds, or "exchange".
    """

    gathered: float
    reduced: float
    seconds: float
    limit: str


def training_step(load: Workload, machines: Machines, measured: Measured, model: str, gpus: int) -> Step:
    """Estimate a training step.

    The arithmetic is the model's on the local batch, and the loss's of the local batch against the global one.
    Meanwhile the host starts the kernels, in a time that hardly depends on the batch, the next batch is read, and the
    shards of the next window are fetched where a machine's disk does not hold all of them; the exchange comes on top.
    """
    facts = measured.sizing["models"][model]
    batch = machines.pairs_per_gpu * gpus
    others = (gpus - 1) / gpus
    embeddings = 2 * batch * facts["embedding"] * 4
    gathered = others * embeddings
    reduced = 2 * others * (embeddings + 4 * facts["parameters"])
    # The similarities, and two matrix products of the backward pass: of the rank's images, and of its captions.
    loss = 3 * 2 * min(2, gpus) * machines.pairs_per_gpu * batch * facts["embedding"]
    seconds = {
        "arithmetic": (machines.pairs_per_gpu * facts["flops_a_pair"] + loss) / machines.flops,
        "host": measured.host_seconds_a_step[model],
        "reading": machines.pairs_per_gpu / measured.read_per_second(load),
        "fetching": _fetching(load, machines, measured, gpus),
        "exchange": (gathered + reduced) / machines.bytes_per_second(gpus),
    }
    limit = max(seconds, key=lambda name: seconds[name])
    total = max(each for name, each in seconds.items() if name != "exchange") + seconds["exchange"]
    return Step(gathered, reduced, total, limit)


def _fetching(load: Workload, machines: Machines, measured: Measured, gpus: int) -> float:
    """Return the seconds of a step for fetching: every machine fetches all shards of a window."""
    total = measured.shard_bytes(load)
    if total <= machines.disk_tb * 1e12:
        return 0.0
    share_of_epoch = machines.pairs_per_gpu * gpus / load.pairs
    return total * share_of_epoch / (machines.network_gbit * 1e9 / 8)


def rows(load: Workload, machines: Machines, measured: Measured) -> dict[str, str]:
    """Return the lines of the table for a data set."""
    facts, models = measured.sizing, list(measured.sizing["models"])
    lines = {
        "images": f"{load.images:,}",
        "training pairs of an epoch": f"{load.pairs:,}",
        f"features of an image, {load.rows} x {load.width}": bytes_text(load.array_bytes),
        f"shards of {load.shard_size} images": f"{load.shards:,}",
        "storage: shards": bytes_text(measured.shard_bytes(load)),
        "storage: sidecars": bytes_text(load.images * facts["shards"]["sidecar_bytes_an_image"]),
    }
    for name, network in facts["extractors"].items():
        hours = load.images * network["flops_an_image"] / machines.flops / 3600
        lines[f"extraction, GPU-hours (estimate): {name}, {network['input']} pixels"] = number_text(hours)
    lines |= {
        "decoding for the extraction, core-hours": number_text(load.images / measured.decoded_per_second / 3600),
        "parsing of captions (UniVSE, VSE-C), core-hours": number_text(
            load.pairs / measured.captions_per_second / 3600
        ),
        "memory of the driver: index of the shards": bytes_text(load.images * facts["reader"]["kept_bytes_an_image"]),
        "memory of the driver: peak while opening them": bytes_text(
            load.images * facts["reader"]["peak_bytes_an_image"]
        ),
        "memory of a rank: order of the epoch, without windows": bytes_text(
            load.pairs * facts["sampler"]["kept_bytes_a_caption"]
        ),
        "memory of a rank: peak while drawing it": bytes_text(load.pairs * facts["sampler"]["peak_bytes_a_caption"]),
        "time to open the shards, once": _time(load.images * facts["reader"]["microseconds_an_image"] * 1e-6),
        "time to draw the order of an epoch": _time(load.pairs * facts["sampler"]["nanoseconds_a_caption"] * 1e-9),
    }
    for model in models:
        for gpus in GPUS:
            step = training_step(load, machines, measured, model, gpus)
            epochs = 3600 * machines.pairs_per_gpu * gpus / step.seconds / load.pairs
            lines[f"epochs an hour (estimate): {model}, {_gpus(gpus)}"] = f"{number_text(epochs)} ({step.limit})"
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table for the data set that the command line describes."""
    options = _parser().parse_args(arguments)
    rows_and_width = dict(zip(("rows", "width"), options.feature, strict=True))
    load = Workload("", options.images, options.captions_per_image, **rows_and_width, shard_size=options.shard_size)
    machines = Machines(options.peak_tflops, options.utilisation, options.pairs_per_gpu)
    lines = rows(load, machines, Measured.load())
    width = max(map(len, lines))
    sys.stdout.write("".join(f"{key:<{width}}  {value}\n" for key, value in lines.items()))


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="python -m infra.sizing", description="Estimate what a data set takes.")
    parser.add_argument("--images", type=_count, required=True, metavar="N")
    parser.add_argument("--captions-per-image", type=_count, default=5, metavar="N")
    parser.add_argument("--feature", type=_shape, default=(36, 2048), metavar="ROWSxWIDTH", help="default: 36x2048")
    parser.add_argument("--shard-size", type=_count, default=Workload.shard_size, metavar="N", help="images a shard")
    parser.add_argument("--pairs-per-gpu", type=_count, default=Machines.pairs_per_gpu, metavar="N")
    parser.add_argument("--peak-tflops", type=number_in(float, 0.1), default=Machines.peak_tflops, help="of a GPU")
    parser.add_argument(
        "--utilisation", type=number_in(float, 0.01, 1), default=Machines.utilisation, help="of the peak"
    )
    return parser


def _count(text: str) -> int:
    """Read a number that may be written with commas, 1,000,000."""
    return number_in(int, 1, 10**12)(text.replace(",", ""))


def _shape(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not ROWSxWIDTH, such as 36x2048")
    return int(match[1]), int(match[2])


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


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

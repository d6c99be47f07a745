"""What data of any size takes, from the first shard to an epoch on 64 GPUs, and where each design choice breaks.

    python -m infra.sizing --images 5000000 --captions-per-image 2 --feature 49x2048

prints the table for one's own data; `--page` writes that of three known sizes to infra/SIZING.md. Bytes, memory and
operations are multiplied up from what tests/benchmarks/{sizing,reader,parsing}.py have measured. How fast a GPU is, is
an estimate: operations over a stated share of a stated peak.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_RESULTS = Path(__file__).resolve().parents[1] / "tests" / "benchmarks" / "results"
_GPUS = (1, 8, 64)


@dataclass(frozen=True)
class Workload:
    """Data of one size.

    Attributes:
        name: for the head of a table.
        images: how many.
        captions_per_image: each caption is a training pair.
        rows: of an image's features.
        width: of them; stored in float16.
        shard_size: images in a shard.
    """

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
    """What the work runs on: the assumptions of every estimate.

    Attributes:
        peak_tflops: of a GPU, bfloat16 without sparsity, from its data sheet (NVIDIA A100: 312).
        utilisation: the share of the peak that is assumed to be reached.
        pairs_per_gpu: of a training step; the global batch grows with the GPUs.
        gpus_per_machine: share a machine's memory, disk and network.
        memory_gb: 10^9 bytes of a machine's main memory.
        disk_tb: 10^12 bytes of a machine's disk.
        link_gbs: 10^9 bytes a second between GPUs of a machine, one way (A100's NVLink: 300).
        network_gbit: 10^9 bits a second between machines.
        listing_seconds: of a request that lists a thousand objects on S3.
    """

    peak_tflops: float = 312.0
    utilisation: float = 0.25
    pairs_per_gpu: int = 128
    gpus_per_machine: int = 8
    memory_gb: float = 1000.0
    disk_tb: float = 10.0
    link_gbs: float = 300.0
    network_gbit: float = 100.0
    listing_seconds: float = 0.1

    @property
    def flops(self) -> float:
        """Operations a second that a GPU is assumed to do."""
        return self.peak_tflops * 1e12 * self.utilisation

    @property
    def rank_bytes(self) -> float:
        """Main memory for each rank."""
        return self.memory_gb * 1e9 / self.gpus_per_machine

    def bytes_per_second(self, gpus: int) -> float:
        """Bandwidth of the slowest link of a ring through so many GPUs."""
        return self.link_gbs * 1e9 if gpus <= self.gpus_per_machine else self.network_gbit * 1e9 / 8


@dataclass(frozen=True)
class Measured:
    """What the benchmarks have written.

    Attributes:
        sizing: of tests/benchmarks/sizing.py.
        reader: of tests/benchmarks/reader.py.
        parsing: of tests/benchmarks/parsing.py.
    """

    sizing: dict[str, Any]
    reader: dict[str, Any]
    parsing: dict[str, Any]

    @classmethod
    def load(cls, folder: Path = _RESULTS) -> Measured:
        """Read the results in a folder.

        Raises:
            SystemExit: one is not there; the message says what makes it.
        """
        results = {}
        for name in ("sizing", "reader", "parsing"):
            try:
                results[name] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
            except FileNotFoundError as error:
                raise SystemExit(f"error: {error.filename} is missing: run python tests/benchmarks/{name}.py") from None
        return cls(**results)

    def shard_bytes(self, load: Workload) -> float:
        """Bytes of all shards: arrays, headers, padding, records."""
        beyond = self.sizing["shards"]["bytes_beyond_the_array"]
        return load.images * float(load.array_bytes + beyond["image"] + beyond["caption"] * load.captions_per_image)

    def read_per_second(self, load: Workload) -> float:
        """Images a second that one rank reads, by the bytes: measured on two cores, from the page cache."""
        ways = self.reader["region 36x2048"]["ways"]
        return float(ways["random, TrainLoader"]["samples_per_second"]) * 36 * 2048 * 2 / load.array_bytes


@dataclass(frozen=True)
class Step:
    """A training step of one model on so many GPUs, estimated.

    Attributes:
        gathered: bytes that a rank receives of the others' embeddings.
        reduced: bytes that a rank sends of gradients, those of the gathered embeddings and of the parameters.
        seconds: of the step.
        limit: what takes longest: "arithmetic", "reading", "fetching" of shards that no disk holds, or "exchange".
    """

    gathered: float
    reduced: float
    seconds: float
    limit: str


def training_step(load: Workload, machines: Machines, measured: Measured, model: str, gpus: int) -> Step:
    """Estimate a step.

    The arithmetic is the model's on the rank's own pairs and the loss's on the whole batch, which every rank takes. The
    next batch is read meanwhile, and the shards of the next window fetched where a machine's disk does not hold all;
    the exchange is taken to come on top.
    """
    facts = measured.sizing["models"][model]
    batch = machines.pairs_per_gpu * gpus
    others = (gpus - 1) / gpus
    embeddings = 2 * batch * facts["embedding"] * 4
    gathered = others * embeddings
    reduced = 2 * others * (embeddings + 4 * facts["parameters"])
    # The similarity matrix, and its two products backwards.
    loss = 3 * 2 * batch**2 * facts["embedding"]
    seconds = {
        "arithmetic": (machines.pairs_per_gpu * facts["flops_a_pair"] + loss) / machines.flops,
        "reading": machines.pairs_per_gpu / measured.read_per_second(load),
        "fetching": _fetching(load, machines, measured, gpus),
        "exchange": (gathered + reduced) / machines.bytes_per_second(gpus),
    }
    limit = max(seconds, key=lambda name: seconds[name])
    total = max(seconds["arithmetic"], seconds["reading"], seconds["fetching"]) + seconds["exchange"]
    return Step(gathered, reduced, total, limit)


def _fetching(load: Workload, machines: Machines, measured: Measured, gpus: int) -> float:
    """Seconds of a step for fetching: every machine has all shards of a window, whatever its ranks read of them."""
    total = measured.shard_bytes(load)
    if total <= machines.disk_tb * 1e12:
        return 0.0
    share_of_epoch = machines.pairs_per_gpu * gpus / load.pairs
    return total * share_of_epoch / (machines.network_gbit * 1e9 / 8)


def gpu_bytes(machines: Machines, measured: Measured, model: str, gpus: int) -> float:
    """Memory of a GPU: weights, gradients and AdamW's two moments, activations of its pairs, the loss's matrices."""
    facts = measured.sizing["models"][model]
    batch = machines.pairs_per_gpu * gpus
    loss = 3 * 4 * batch**2 + 2 * 2 * batch * facts["embedding"] * 4
    return float(16 * facts["parameters"] + machines.pairs_per_gpu * facts["activation_bytes_a_pair"] + loss)


def rows(load: Workload, machines: Machines, measured: Measured) -> dict[str, str]:
    """The lines of the table for data of one size."""
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
        lines[f"extraction, GPU-hours (estimate): {name}, {network['input']} pixels"] = _number(hours)
    captions_per_second = measured.parsing["one_core"]["stage_captions_per_second"]
    lines |= {
        "parsing of the captions, where a model needs it, core-hours": _number(load.pairs / captions_per_second / 3600),
        "a rank's memory: index of the shards": bytes_text(load.images * facts["reader"]["kept_bytes_an_image"]),
        "a rank's memory: while it opens them": bytes_text(load.images * facts["reader"]["peak_bytes_an_image"]),
        "a rank's memory: the epoch's order": bytes_text(load.pairs * facts["sampler"]["kept_bytes_a_caption"]),
        "a rank's memory: while it is drawn": bytes_text(load.pairs * facts["sampler"]["peak_bytes_a_caption"]),
        "to open the shards": _time(load.images * facts["reader"]["microseconds_an_image"] * 1e-6),
        "to draw an epoch's order": _time(load.pairs * facts["sampler"]["nanoseconds_a_caption"] * 1e-9),
    }
    for model in models:
        for gpus in _GPUS:
            step = training_step(load, machines, measured, model, gpus)
            epochs = 3600 * machines.pairs_per_gpu * gpus / step.seconds / load.pairs
            lines[f"epochs an hour (estimate): {model}, {_gpus(gpus)}"] = f"{_number(epochs)} ({step.limit})"
    return lines


def step_table(machines: Machines, measured: Measured) -> tuple[list[str], list[list[str]]]:
    """What a step exchanges and takes of a GPU's memory, whatever the size of the data: a head and its lines."""
    load = Workload("any", 1, 1)
    head = ["model", "GPUs", "global batch", "gathered a rank", "gradients sent a rank", "memory of a GPU", "step"]
    table = []
    for model in measured.sizing["models"]:
        for gpus in _GPUS:
            step = training_step(load, machines, measured, model, gpus)
            memory = gpu_bytes(machines, measured, model, gpus)
            exchanged = [bytes_text(step.gathered), bytes_text(step.reduced), bytes_text(memory)]
            batch = f"{machines.pairs_per_gpu * gpus:,}"
            table.append([model, str(gpus), batch, *exchanged, f"{step.seconds * 1e3:.1f} ms, {step.limit}"])
    return head, table


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table for the data that the command line describes, or write the page."""
    options = _parser().parse_args(arguments)
    measured = Measured.load()
    if options.page:
        from infra import sizing_page

        sys.stdout.write(f"written: {sizing_page.write(measured)}\n")
        return
    if options.images is None:
        raise SystemExit("error: give --images, or --page")
    features = dict(zip(("rows", "width"), options.feature, strict=True))
    load = Workload("", options.images, options.captions_per_image, **features, shard_size=options.shard_size)
    machines = Machines(options.peak_tflops, options.utilisation, options.pairs_per_gpu)
    lines = rows(load, machines, measured)
    width = max(map(len, lines))
    sys.stdout.write("".join(f"{key:<{width}}  {value}\n" for key, value in lines.items()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.sizing", description="What data of a size takes.")
    parser.add_argument("--images", type=_positive, metavar="N")
    parser.add_argument("--captions-per-image", type=_positive, default=5, metavar="N")
    parser.add_argument("--feature", type=_shape, default=(36, 2048), metavar="ROWSxWIDTH", help="default: 36x2048")
    parser.add_argument("--shard-size", type=_positive, default=Workload.shard_size, metavar="N", help="images a shard")
    parser.add_argument("--pairs-per-gpu", type=_positive, default=Machines.pairs_per_gpu, metavar="N")
    parser.add_argument("--peak-tflops", type=float, default=Machines.peak_tflops, help="of a GPU, in bfloat16")
    parser.add_argument("--utilisation", type=float, default=Machines.utilisation, help="share of the peak, assumed")
    parser.add_argument("--page", action="store_true", help="write infra/SIZING.md instead")
    return parser


def _positive(text: str) -> int:
    value = int(text.replace(",", "").replace("_", ""))
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _shape(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not ROWSxWIDTH, such as 36x2048")
    return int(match[1]), int(match[2])


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def bytes_text(value: float) -> str:
    """Bytes in the largest unit of which there is one."""
    for unit, factor in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{_number(value / factor)} {unit}"
    return f"{value:.0f} bytes"


def count_text(value: float) -> str:
    """A large number in words, rounded to two digits."""
    for unit, factor in (("billion", 1e9), ("million", 1e6)):
        if value >= factor:
            return f"{_number(value / factor)} {unit}"
    return f"{float(f'{value:.2g}'):,.0f}"


def _time(seconds: float) -> str:
    for unit, factor in (("h", 3600.0), ("min", 60.0)):
        if seconds >= factor:
            return f"{_number(seconds / factor)} {unit}"
    return f"{_number(seconds)} s"


def _number(value: float) -> str:
    """Two digits that count, more where the whole number has more."""
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


if __name__ == "__main__":
    main()

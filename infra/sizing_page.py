"""The page infra/SIZING.md: what data of three known sizes takes, and where each design choice breaks."""

from __future__ import annotations

import math
from pathlib import Path

from infra.sizing import Machines, Measured, Workload, bytes_text, count_text, rows, step_table

PATH = Path(__file__).with_name("SIZING.md")

_LOADS = (
    Workload("COCO", 113_287, 5),
    Workload("CC12M", 12_400_000, 1),
    Workload("1 billion pairs", 1_000_000_000, 1),
)
_PAGE = """\
<!-- Written by `python -m infra.sizing --page` from tests/benchmarks/results: change those. -->

# Sizing

What the pipeline takes for data of three sizes: COCO in Karpathy's split, CC12M, and a billion pairs. For other data:

    python -m infra.sizing --images 5000000 --captions-per-image 2 --feature 49x2048

**Measured** are bytes on disk, bytes of memory, the times to open shards and to draw an order, how fast a core parses
captions, and how fast a rank reads (on {cpus} CPU cores). **Counted** are parameters and floating-point operations, by
running or tracing the networks themselves. **No GPU was measured**: GPU-hours and epochs an hour are operations over
{utilisation:.0%} of a peak of {peak:g} TFLOP/s (an A100's bfloat16, by its data sheet), and both figures are
assumptions. A recurrent text encoder may well reach less, a large convolution more. Extraction also waits for images to
be fetched and decoded, which is left out.

Other assumptions: {gpus} GPUs, {memory:g} GB of memory and {disk:g} TB of disk a machine, {link:g} GB/s between its
GPUs, {network:g} Gbit/s between machines, {pairs} pairs a GPU and step, so that the global batch grows with the GPUs.
Reading is taken at the rate of the two cores on which it was measured, for each rank.

## Data and epochs

{data}

In brackets: what a step spends most of its time with. The models are VSE-infinity's over 36 x 2048 regions, with a
BiGRU or BERT. An epoch reads an image once for each of its captions. Where the shards are more than a machine's disk,
every machine fetches all of them once an epoch.

## A training step

{step}

Gathered are the embeddings of both sides; sent are the gradients of those and of the parameters, as rings of all ranks
exchange them. The exchange is taken not to overlap with anything; DistributedDataParallel does better.

## Where each design choice breaks

A rank has {rank} of main memory here.

{limits}
"""


def write(measured: Measured) -> Path:
    """Write the page; returns where it is."""
    PATH.write_text(page(measured), encoding="utf-8")
    return PATH


def page(measured: Measured) -> str:
    """The page, as Markdown."""
    machines = Machines()
    columns = [rows(load, machines, measured) for load in _LOADS]
    head = ["", *(load.name for load in _LOADS)]
    limits = [*_memory(machines, measured), *_storage(machines, measured), *_services(machines, measured)]
    return _PAGE.format(
        cpus=measured.sizing["machine"]["cpus"],
        utilisation=machines.utilisation,
        peak=machines.peak_tflops,
        gpus=machines.gpus_per_machine,
        memory=machines.memory_gb,
        disk=machines.disk_tb,
        link=machines.link_gbs,
        network=machines.network_gbit,
        pairs=machines.pairs_per_gpu,
        rank=bytes_text(machines.rank_bytes),
        data=_markdown(head, [[key, *(column[key] for column in columns)] for key in columns[0]]),
        step=_markdown(*step_table(machines, measured)),
        limits=_markdown(["design choice", "measured or counted", "breaks at", "then"], limits),
    )


def _memory(machines: Machines, measured: Measured) -> list[list[str]]:
    """What every rank holds of data of all sizes."""
    reader, sampler = measured.sizing["reader"], measured.sizing["sampler"]
    return [
        [
            "every rank holds where each sample lies",
            f"{reader['kept_bytes_an_image']:.0f} bytes an image, {reader['peak_bytes_an_image']:.0f} while it opens",
            f"{count_text(machines.rank_bytes / reader['peak_bytes_an_image'])} images",
            "one file of tables for a split, mapped by all ranks of a machine",
        ],
        [
            "opening parses every sidecar, one after the other",
            f"{reader['microseconds_an_image']:.0f} microseconds an image",
            f"{count_text(600 / reader['microseconds_an_image'] * 1e6)} images: ten minutes at every start and restart",
            "the same file of tables",
        ],
        [
            "every rank draws the order of the whole epoch",
            f"{sampler['kept_bytes_a_caption']:.0f} bytes a caption, {sampler['peak_bytes_a_caption']:.0f} meanwhile",
            f"{count_text(machines.rank_bytes / sampler['peak_bytes_a_caption'])} captions",
            "draw the order of the shards, and that of the samples one window of `training.shuffle_shards` at a time; "
            "it stays a function of seed, epoch and step",
        ],
    ]


def _storage(machines: Machines, measured: Measured) -> list[list[str]]:
    """What is on disks and on S3."""
    shards, listing = measured.sizing["shards"], measured.sizing["listing"]
    image_bytes = measured.shard_bytes(Workload("one image", 1, 5))
    failed = shards["set_aside_bytes_an_image"]
    return [
        [
            "every machine has all shards of a split on its disk",
            f"{bytes_text(image_bytes)} an image with five captions",
            f"{count_text(machines.disk_tb * 1e12 / image_bytes)} images",
            "`storage.cache_gb` with `training.shuffle_shards`: the shards of a window are fetched while those of the "
            "last one are read",
        ],
        [
            "a batch mixes all shards of a window, so that every machine fetches each of them whole",
            f"{machines.network_gbit:g} Gbit/s (assumed)",
            f"{count_text(machines.network_gbit * 1e9 / 8 * 3600 / image_bytes)} images for an epoch an hour, however "
            "many the machines",
            "fetch the samples of the machine's own ranks alone: sidecars know where in a tar they lie",
        ],
        [
            "two files a shard, all in one folder, each looked at before every stage",
            "500 images a shard",
            "50 million images: 100,000 shards",
            "`features.shard_size: 5000`; shards of 36 x 2048 then have 0.75 GB",
        ],
        [
            "keys have eight digits, and those of a shard one width",
            "one an image",
            "100 million images, where one shard holds both 99999999 and 100000000: it is refused",
            "a `features.shard_size` that divides 100 million, such as 500 or 5000, and no `features.shard_mb`",
        ],
        [
            "images on S3 are listed, a thousand a request, and kept in memory to tell whether they have changed",
            f"{listing['kept_bytes_an_image']:.0f} bytes an image, {machines.listing_seconds:g} s a request (assumed)",
            f"{count_text(3600 / machines.listing_seconds * 1000)} images: an hour at every start",
            "archives of images (`dataset.format: webdataset`): an object then holds thousands of them",
        ],
        [
            "the manifest names every image that was set aside",
            f"{failed} bytes each",
            f"{count_text(1e9 / 0.01 / failed)} images, of which one in a hundred fails: 1 GB of JSON",
            "leave the reasons in the sidecars, where they are too, and only count them in the manifest",
        ],
    ]


def _services(machines: Machines, measured: Measured) -> list[list[str]]:
    """Tracking, loss and evaluation."""
    embedding = next(iter(measured.sizing["models"].values()))["embedding"]
    embedded = (1 + 5) * embedding * 4
    # Every pair of an image and one of five captions a picture, in both directions, two operations a dimension.
    evaluated = math.sqrt(3600 * machines.flops / (2 * 2 * 5 * embedding))
    return [
        [
            "MLflow in a sqlite file",
            "one writer at a time, on one machine",
            "the second machine, or several runs at once",
            "the server on PostgreSQL (infra/mlflow/compose.yaml, infra/kubernetes/mlflow.yaml)",
        ],
        [
            "every rank has the similarities of the global batch, and takes the loss of all of it",
            "12 bytes a pair of pairs",
            f"a global batch of {count_text(math.sqrt(8e9 / 12))}: 8 GB of each GPU",
            "each rank the rows of its own pairs; cached gradients shrink the activations, not this",
        ],
        [
            "evaluation compares every image with every caption, 512 rows of the matrix at a time",
            f"{bytes_text(embedded)} of embeddings an image with five captions; work grows with the square",
            f"{count_text(machines.rank_bytes / embedded)} images by memory, "
            f"{count_text(evaluated)} by an hour of a GPU (estimate)",
            "select on a fixed sample (the published protocols have 1,000 and 5,000 images)",
        ],
    ]


def _markdown(head: list[str], body: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body))

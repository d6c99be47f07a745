"""The tables of docs/sizing.md: what data of three known sizes take, and where each design choice breaks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from infra.sizing import GPUS, Machines, Measured, Workload, bytes_text, number_text, rows, training_step
from vse_core.losses.global_pairs import BLOCK

LOADS = (
    Workload("COCO", 113_287, 5),
    Workload("CC12M", 12_400_000, 1),
    Workload("1 billion pairs", 1_000_000_000, 1),
)

Table = tuple[list[str], list[list[str]]]
# The images, captions or pairs at which something breaks, and its row.
Limit = tuple[float, list[str]]


def shipped_figures(results: Path) -> dict[str, Any]:
    """Return the figures that `python -m infra.sizing` multiplies up, from the benchmarks' results."""
    sizing, reader, parsing, feeding = (_result(results, name) for name in ("sizing", "reader", "parsing", "feeding"))
    step, with_bert = _result(results, "step_gpu")["now"], _result(results, "presets")["presets"]["regions and BERT"]
    shortest = min(with_bert[precision]["seconds_per_step"] for precision in ("float32", "tf32", "bf16"))
    return {
        "sizing": {key: value for key, value in sizing.items() if key not in ("command", "machine")},
        "samples_per_second": reader["region 36x2048"]["ways"]["random, TrainLoader"]["samples_per_second"],
        "captions_per_second": parsing["one_core"]["stage_captions_per_second"],
        "decoded_per_second": feeding["medians"]["rates"]["1 thread"]["decoding_images_per_second"],
        "host_seconds_a_step": {"regions and BiGRU": step["seconds_per_step"], "regions and BERT": shortest},
    }


def _result(results: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
    return content


def run_table(results: Path) -> Table:
    """Return what has been run at size, on machines of 2 CPU cores without a GPU."""
    plan, index, start = (_result(results, name) for name in ("planning", "indexing_large", "start_up"))
    loss, step, scaling = (_result(results, name) for name in ("local_rows", "step_released", "scaling"))
    board, reader = (_result(results, name) for name in ("leaderboard", "reader"))
    trained = board["features"]["MobileNetV2, 7x7"]["runs"]["VSE-infinity"]
    seconds = min(run["training_seconds"] for run in trained.values())
    large = start["large"]["with tables"]
    (big,) = loss["after, big step"]["runs"]
    samples = reader["region 36x2048"]["ways"]["random, TrainLoader"]["samples_per_second"]
    two = scaling["ways"]["2 processes of 1 thread"]["speed_up_over_one_thread"]
    rows = [
        ["training of Flickr8k, 7 epochs", "6,000 photographs, 30,000 captions", f"{seconds:.0f} s, one thread, bf16"],
        ["photographs indexed", f"{index['images']:,}", f"{index['seconds']:.0f} s with a small network"],
        [
            "start of a training process",
            f"{start['large']['images']:,} images and captions, made-up tables",
            f"{large['seconds']:.1f} s, {large['own_megabytes_at_the_first_batch']:.0f} MB of its own",
        ],
        ["plan of archives on S3", f"{plan['archives']:,} archives", f"{plan['listing_seconds']:.1f} s"],
        [
            "step with cached gradients",
            f"a global batch of {big['pairs']:,} on {big['processes']} processes, tiny towers",
            f"{big['megabytes'] / 1000:.1f} GB a process",
        ],
        ["training processes", "2, of one thread each", f"{two:.2f} x the rate of one"],
        ["samples that a rank reads", "36 x 2048, from the page cache", f"{samples:,.0f} a second"],
        *(
            [
                f"training step of VSE-infinity, {label}, {processor}",
                "128 pairs",
                f"{128 / row['seconds']['float32']:,.0f} pairs a second in float32, "
                f"{128 / row['seconds']['bf16']:,.0f} in bf16",
            ]
            for processor, measured in step["processors"].items()
            for label, row in measured["rows"].items()
        ),
    ]
    return ["what was run", "size", "result"], rows


def rank_bytes(machines: Machines) -> float:
    """Return the main memory for each rank."""
    return machines.memory_gb * 1e9 / machines.gpus_per_machine


def gpu_bytes(machines: Machines, measured: Measured, model: str, gpus: int) -> float:
    """Return the memory of a GPU: weights, gradients, AdamW's two moments, activations and the loss's matrices."""
    facts = measured.sizing["models"][model]
    batch = machines.pairs_per_gpu * gpus
    # Of the rank's images, and of its captions; from a size on in blocks, which hold five matrices.
    matrices = 4 * min(3 * min(2, gpus) * machines.pairs_per_gpu * batch, 5 * BLOCK)
    loss = matrices + 2 * 2 * batch * facts["embedding"] * 4
    return float(16 * facts["parameters"] + machines.pairs_per_gpu * facts["activation_bytes_a_pair"] + loss)


def count_text(value: float) -> str:
    """Format a large number in words, rounded to two digits."""
    for unit, factor in (("billion", 1e9), ("million", 1e6)):
        if value >= factor:
            return f"{number_text(value / factor)} {unit}"
    return f"{float(f'{value:.2g}'):,.0f}"


def data_table(machines: Machines, measured: Measured) -> Table:
    """Return storage, memory and time for three data sets."""
    columns = [rows(load, machines, measured) for load in LOADS]
    head = ["", *(load.name for load in LOADS)]
    return head, [[key, *(column[key] for column in columns)] for key in columns[0]]


def step_table(machines: Machines, measured: Measured) -> Table:
    """Return what a step exchanges and takes of a GPU's memory, whatever the size of the data."""
    head = ["model", "GPUs", "global batch", "gathered by a rank", "gradients sent by a rank", "GPU memory", "step"]
    table = []
    for model in measured.sizing["models"]:
        for gpus in GPUS:
            step = training_step(Workload("any", 1, 1), machines, measured, model, gpus)
            sizes = (step.gathered, step.reduced, gpu_bytes(machines, measured, model, gpus))
            batch, seconds = machines.pairs_per_gpu * gpus, f"{step.seconds * 1e3:.1f} ms, {step.limit}"
            table.append([model, str(gpus), f"{batch:,}", *map(bytes_text, sizes), seconds])
    return head, table


def limits_table(machines: Machines, measured: Measured) -> Table:
    """Return the size at which each design choice breaks, the smallest first."""
    head = ["design choice", "measured or counted", "breaks at", "then"]
    limits = [*_memory(machines, measured), *_storage(machines, measured), *_services(machines, measured)]
    return head, [row for _, row in sorted(limits, key=lambda limit: limit[0])]


def _memory(machines: Machines, measured: Measured) -> list[Limit]:
    """Return the limits of a rank's memory."""
    reader, sampler = measured.sizing["reader"], measured.sizing["sampler"]
    kept, opening = reader["kept_bytes_an_image"], reader["peak_bytes_an_image"]
    positions = rank_bytes(machines) / opening
    parsed = 600 / reader["microseconds_an_image"] * 1e6
    order, drawing = sampler["kept_bytes_a_caption"], sampler["peak_bytes_a_caption"]
    drawn = rank_bytes(machines) / drawing
    return [
        (
            positions,
            [
                "the driver has the position of each sample in memory when it makes the tables that all ranks map",
                f"{kept:.0f} bytes an image, {opening:.0f} while it opens",
                f"{count_text(positions)} images",
                "parts of the tables made as Ray tasks",
            ],
        ),
        (
            parsed,
            [
                "the driver parses every sidecar, one after the other, before the first training on a split",
                f"{reader['microseconds_an_image']:.0f} microseconds an image",
                f"{count_text(parsed)} images: ten minutes, once",
                "the same parts",
            ],
        ),
        (
            drawn,
            [
                "without `training.shuffle_shards` every rank draws the order of the complete epoch",
                f"{order:.0f} bytes a caption, {drawing:.0f} at the peak",
                f"{count_text(drawn)} captions",
                "with it a rank draws the order of the shards, and that of the samples one window at a time",
            ],
        ),
    ]


def _storage(machines: Machines, measured: Measured) -> list[Limit]:
    """Return the limits of disks and of S3."""
    shards, listing = measured.sizing["shards"], measured.sizing["listing"]
    image_bytes = measured.shard_bytes(Workload("one image", 1, 5))
    failed = shards["skipped_bytes_an_image"]
    held = machines.disk_tb * 1e12 / image_bytes
    fetched = machines.network_gbit * 1e9 / 8 * 3600 / image_bytes
    listed, named = 3600 / machines.listing_seconds * 1000, 1e9 / 0.01 / failed
    return [
        (
            held,
            [
                "every machine has all shards of a split on its disk",
                f"{bytes_text(image_bytes)} an image with five captions",
                f"{count_text(held)} images",
                "`storage.cache_gb` with `training.shuffle_shards`: the shards of a window are fetched while those "
                "of the last one are read",
            ],
        ),
        (
            fetched,
            [
                "a batch mixes all shards of a window, so that few machines fetch all of each",
                f"{machines.network_gbit:g} Gbit/s (assumed)",
                f"{count_text(fetched)} images for an epoch an hour, on five machines or fewer",
                "more machines than captions an image: each then fetches the images of its own ranks alone",
            ],
        ),
        (
            50e6,
            [
                "three files a shard, all in one folder, each looked at before every stage",
                "500 images a shard",
                "50 million images: 100,000 shards",
                "`features.shard_size: 5000`; shards of 36 x 2048 then have 0.75 GB",
            ],
        ),
        (
            100e6,
            [
                "keys have eight digits, and those of a shard one width",
                "one an image",
                "100 million images, where one shard would have both 99999999 and 100000000: it is refused",
                "a `features.shard_size` that divides 100 million, such as 500 or 5000, and no `features.shard_mb`",
            ],
        ),
        (
            listed,
            [
                "images on S3 are listed, a thousand a request, and kept in memory to tell whether they have changed",
                f"{listing['kept_bytes_an_image']:.0f} bytes an image, {machines.listing_seconds:g} s a request "
                "(assumed)",
                f"{count_text(listed)} images: an hour at every start",
                "archives of images (`dataset.format: webdataset`): an object then holds thousands of them",
            ],
        ),
        (
            named,
            [
                "the manifest names every skipped image",
                f"{failed} bytes each",
                f"{count_text(named)} images, of which one in a hundred fails: 1 GB of JSON",
                "keep the reasons in the sidecars only, and their counts in the manifest",
            ],
        ),
    ]


def _services(machines: Machines, measured: Measured) -> list[Limit]:
    """Return the limits of tracking, loss and evaluation."""
    embedding = next(iter(measured.sizing["models"].values()))["embedding"]
    embedded = (1 + 5) * embedding * 4
    # Every pair of an image and a caption (five an image), in both directions, two operations a dimension.
    gathered = 8e9 / (16 * embedding)
    compared = rank_bytes(machines) / embedded
    evaluated = math.sqrt(3600 * machines.flops / (2 * 2 * 5 * embedding))
    return [
        (
            1,
            [
                "MLflow in a sqlite file",
                "one writer at a time, on one machine",
                "the second machine, or several runs at once",
                "the server on PostgreSQL (infra/mlflow/compose.yaml, infra/kubernetes/mlflow.yaml)",
            ],
        ),
        (
            gathered,
            [
                "every rank has the embeddings of the global batch and their gradients; it compares its own pairs "
                "with all",
                f"{bytes_text(16 * embedding)} a pair; similarities in blocks, {bytes_text(20 * BLOCK)} at most",
                f"a global batch of {count_text(gathered)}: 8 GB of each GPU",
                "pass the embeddings from rank to rank, a block at a time, as SigLIP does",
            ],
        ),
        (
            min(compared, evaluated),
            [
                "evaluation compares every image with every caption, 512 rows of the matrix at a time",
                f"{bytes_text(embedded)} of embeddings an image with five captions; work grows with the square",
                f"{count_text(compared)} images by memory, {count_text(evaluated)} by an hour of a GPU (estimate)",
                "select on a fixed sample (the published protocols have 1,000 and 5,000 images)",
            ],
        ),
    ]

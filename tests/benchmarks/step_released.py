"""The training step of VSE-infinity against the step of its released code, taking turns in one run.

Run: git clone --branch bigru https://github.com/woodfrog/vse_infty FOLDER
     python tests/benchmarks/step_released.py --released FOLDER

Each way is a process of its own: the released one as its users start it, ours with the allocator's settings that
training gives its workers. Captions of 9 to 17 words have as many distinct ones in a batch as those of Flickr8k. On a
GPU (--device cuda) the batch is there already, and a turn is several steps, of which ours waits for the last alone;
they are replayed from CUDA graphs, or, where it says so, started one operator after the other.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from reader import RESULTS, origin
from torch import Tensor, nn

from pipelines.runtime.cluster import KEEP_MEMORY
from preprocessing.storage.atomic import write_json_atomic
from vse_core.losses import build_loss
from vse_core.models import build_model
from vse_core.precision import use_tf32
from vse_core.training.graphs import GraphedSteps
from vse_core.training.mixed_precision import MixedPrecision
from vse_core.training.optim import build_optimizer
from vse_core.training.step import LocalBatch, training_step

BATCH, VOCABULARY, CLIP = 128, 8481, 2.0
SIZES = {"36 x 2048, D 1024": (36, 2048, 1024), "49 x 1280, D 512": (49, 1280, 512)}
WAYS = {
    "cpu": ("released", "float32", "bf16"),
    "cuda": ("released", "float32, no graph", "float32", "tf32", "bf16, no graph", "bf16"),
}
STEPS = {"cpu": 1, "cuda": 20}  # a turn


def inputs_of(regions: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Regions, of which a fifth is left out at most, and captions sorted by length, as the released code asks for."""
    generator = torch.Generator().manual_seed(0)
    kept_B = torch.randint(int(regions * 0.8), regions + 1, (BATCH,), generator=generator)
    words_B = torch.randint(9, 18, (BATCH,), generator=generator).sort(descending=True).values
    features_BNF = torch.rand(BATCH, regions, width, generator=generator)
    features_BNF *= (torch.arange(regions) < kept_B.unsqueeze(1)).unsqueeze(2)
    # The rarer a word, the more of its kind: some 480 distinct ones.
    ranks_BL = (VOCABULARY - 4.0) ** (torch.rand(BATCH, 17, generator=generator) ** 2)
    return features_BNF, kept_B, ranks_BL.long() + 3, words_B


def our_step(name: str, size: tuple[int, int, int], device: str) -> Callable[[], object]:
    """Return a step of this library in a precision, on a GPU from a graph if it does not say otherwise."""
    regions, width, dim = size
    gpo = {"name": "gpo"}
    model = build_model(width, VOCABULARY, dim, image={"pooling": gpo}, text={"pooling": gpo}).to(device)
    name, is_graphed = name.removesuffix(", no graph"), device == "cuda" and not name.endswith(", no graph")
    loss, optimizer = build_loss("triplet"), build_optimizer(model, 5e-4, 1e-4, capturable=is_graphed)
    inputs = [tensor.to(device) for tensor in inputs_of(regions, width)]
    batch = LocalBatch(inputs, torch.arange(BATCH, device=device), [BATCH])
    use_tf32(name == "tf32")
    precision = MixedPrecision("bf16" if name == "bf16" else "float32", device)
    if is_graphed:
        return partial(GraphedSteps(model, optimizer, CLIP, precision), loss, [batch], diagnosed=False)
    return partial(training_step, model, loss, optimizer, [batch], CLIP, precision, diagnosed=False)


def released_step(folder: Path, size: tuple[int, int, int], device: str) -> Callable[[], object]:
    """Return a step as `VSEModel.train_emb` of the released code takes it."""
    sys.path.insert(0, str(folder))
    from lib.encoders import get_image_encoder, get_text_encoder  # type: ignore[import-not-found]
    from lib.loss import ContrastiveLoss  # type: ignore[import-not-found]

    regions, width, dim = size
    images, texts = get_image_encoder(width, dim).to(device), get_text_encoder(VOCABULARY, dim, 300, 1).to(device)
    criterion = ContrastiveLoss(SimpleNamespace(), margin=0.2, max_violation=True)
    parameters = [*texts.parameters(), *images.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=5e-4, weight_decay=1e-4)
    features_BNF, kept_B, tokens_BL, words_B = (tensor.to(device) for tensor in inputs_of(regions, width))

    def step() -> None:
        embedded = images(features_BNF, kept_B), texts(tokens_BL, words_B)
        optimizer.zero_grad()
        loss = criterion(*embedded)
        loss.item()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()

    return step


def serve(way: str, folder: Path, size: tuple[int, int, int], device: str, threads: int, asked: Connection) -> None:
    """Take a turn for every message, and answer with the seconds of a step."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    step = released_step(folder, size, device) if way == "released" else our_step(way, size, device)
    while asked.recv():
        began = time.perf_counter()
        for _ in range(STEPS[device]):
            step()
        if device == "cuda":
            torch.cuda.synchronize()
        asked.send((time.perf_counter() - began) / STEPS[device])


def measure(folder: Path, size: tuple[int, int, int], device: str, threads: int, rounds: int) -> dict[str, Any]:
    """Median seconds of a step of every way, which take turns, and how many times faster than released ours are."""
    context = multiprocessing.get_context("spawn")
    ways = {}
    for way in WAYS[device]:
        here, there = context.Pipe()
        settings = {} if way == "released" else KEEP_MEMORY
        os.environ.update(settings)  # read as the process starts
        context.Process(target=serve, args=(way, folder, size, device, threads, there), daemon=True).start()
        for name in settings:
            del os.environ[name]
        ways[way] = here
    seconds: dict[str, list[float]] = {way: [] for way in WAYS[device]}
    for _ in range(rounds + 1):
        for way, asked in ways.items():
            asked.send(True)
            seconds[way].append(asked.recv())
    for asked in ways.values():
        asked.send(False)
    medians = {way: statistics.median(times[1:]) for way, times in seconds.items()}
    turns = zip(*(times[1:] for times in seconds.values()), strict=True)
    ratios = list(zip(*([turn[0] / each for each in turn[1:]] for turn in turns), strict=True))
    faster = {way: round(statistics.median(each), 2) for way, each in zip(WAYS[device][1:], ratios, strict=True)}
    return {"seconds": {way: round(median, 4) for way, median in medians.items()}, "times_faster": faster}


def main() -> None:
    """Measure both sizes, on a CPU on one thread and on two, and add the result to those of other processors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--released", type=Path, required=True, help="checkout of the released code, branch bigru")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, default=RESULTS / "step_released.json")
    arguments = parser.parse_args()
    device = arguments.device
    rows = {
        f"{label}, {threads} threads" if device == "cpu" else label: measure(
            arguments.released, size, device, threads, arguments.rounds
        )
        for label, size in SIZES.items()
        for threads in ((1, 2) if device == "cpu" else (1,))
    }
    measured = {**origin(), "rounds": arguments.rounds, "rows": rows}
    output = arguments.output
    result = json.loads(output.read_text(encoding="utf-8")) if output.is_file() else {"processors": {}}
    processor = torch.cpu.get_capabilities()["cpu_name"] if device == "cpu" else torch.cuda.get_device_name()
    result["processors"][processor] = measured
    write_json_atomic(output, result)
    print(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()

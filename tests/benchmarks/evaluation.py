"""Time and memory of evaluation, against the bare matrix product and the loops of the released code, in one run.

The loops sort the similarities of every query, in float64, as the code of VSE-infinity, VSE+2AD and MV-VSE does; they
are timed on a sample of the queries and scaled up. With one thread times are CPU seconds, so that other work on the
machine counts little; with several, which help the products and ours but no loop, they are those of the clock. Memory
is what a process rises to above the embeddings.

Run: python tests/benchmarks/evaluation.py [--part coco|views] [--threads N]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from reader import RESULTS, origin
from torch import Tensor, nn

from preprocessing.storage.atomic import write_json_atomic
from vse_core.evaluation.recall import rank_retrieval

DIM, CAPTIONS, FOLDS = 1024, 5, 5
# Query rows that the loops are timed on.
SAMPLE = 100
Members = list[tuple[Tensor, Tensor]]


def embeddings(images: int, views: int = 1, captions: int = CAPTIONS, dim: int = DIM, seed: int = 0) -> Members:
    """Unit vectors of one model: captions near their images, some of them with equal neighbours."""
    generator = torch.Generator().manual_seed(seed)
    images_BKD = nn.functional.normalize(torch.randn(images, views, dim, generator=generator), dim=-1)
    texts_CD = images_BKD[:, 0].repeat_interleave(captions, dim=0)
    texts_CD = texts_CD.add_(torch.randn(texts_CD.shape, generator=generator), alpha=0.25)
    texts_CD = nn.functional.normalize(texts_CD, dim=-1)
    # As in COCO, where a sentence comes twice now and then.
    texts_CD[:: 50 * captions] = texts_CD[captions :: 50 * captions][: len(texts_CD[:: 50 * captions])]
    return [(images_BKD, texts_CD)]


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Time, of the CPU with one thread and else of the clock, and what the work returns."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    started = clock()
    found = work()
    return clock() - started, found


def products(members: Members) -> float:
    """CPU time of all inner products alone, in blocks that the allocator hands out again."""

    def work() -> None:
        for images_BKD, texts_CD in members:
            for block in images_BKD.flatten(0, 1).split(500):
                block @ texts_CD.T

    return seconds(work)[0]


def loop_ranks(sims: np.ndarray, rows: range) -> tuple[np.ndarray, np.ndarray]:
    """Ranks by sorting each query's similarities: of some images, and of the captions of the same images."""
    images, captions = [], []
    for image in rows:
        order = np.argsort(sims[image])[::-1]
        images.append(min(np.where(order == CAPTIONS * image + place)[0][0] for place in range(CAPTIONS)))
        for caption in range(CAPTIONS * image, CAPTIONS * (image + 1)):
            order = np.argsort(sims[:, caption])[::-1]
            captions.append(np.where(order == image)[0][0])
    return np.array(images), np.array(captions)


def loops(members: Members) -> tuple[float, float, np.ndarray, np.ndarray]:
    """Times of the released way: of its products, and of its loops as estimated; ranks of the sample in the whole."""
    arrays = [(images_BKD.double().numpy(), texts_CD.double().numpy()) for images_BKD, texts_CD in members]
    images = len(arrays[0][0])

    def similarities() -> np.ndarray:
        each = [np.max([view @ texts.T for view in views.swapaxes(0, 1)], axis=0) for views, texts in arrays]
        return np.mean(each, axis=0) if len(each) > 1 else each[0]

    spent, sims = seconds(similarities)
    rows = range(SAMPLE)
    whole, ranks = seconds(lambda: loop_ranks(sims, rows))
    size = images // FOLDS
    fold = np.ascontiguousarray(sims[:size, : CAPTIONS * size])
    folded, _ = seconds(lambda: loop_ranks(fold, rows))
    # The products of the folds, a fifth in all, are computed again.
    return spent * (1 + 1 / FOLDS), (whole + folded) * images / len(rows), *ranks


def held_bytes(kind: str) -> int:
    """Memory of this process: VmRSS that it holds, VmHWM the most that it has held since `forget_peak`."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(kind))


def forget_peak() -> None:
    """Let the most that was held begin again (Linux)."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def rise_above(members: Members, before: int, work: Callable[[], Any]) -> tuple[float, float, Any]:
    """CPU time of a piece of work, by how many MB memory rises above the embeddings, and what the work returns."""
    embedded = sum(tensor.numel() * tensor.element_size() for member in members for tensor in member)
    forget_peak()
    spent, found = seconds(work)
    return round(spent, 2), round((held_bytes("VmHWM") - before - embedded) / 1e6, 1), found


def _run_apart(work: Callable[[], Any], queue: Any) -> None:
    torch.set_num_threads(1)
    # A first small call loads what the libraries load once.
    rank_retrieval(embeddings(50), CAPTIONS)
    queue.put(work())


def rise(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of a function called in a process of its own, whose peak memory is the function's alone."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_run_apart, args=(work, queue))
    process.start()
    found: dict[str, Any] = queue.get()
    process.join()
    return found


def memory(images: int, captions: int, dim: int) -> dict[str, Any]:
    """Rise of memory while both directions are ranked, whole and in folds."""
    before = held_bytes("VmRSS")
    members = embeddings(images, captions=captions, dim=dim)
    spent, risen, ranks = rise_above(members, before, lambda: rank_retrieval(members, captions, (1, FOLDS)))
    return {"risen_MB": risen, "seconds": spent, "rsum": round(ranks[1].result().rsum, 2)}


def coco(images: int) -> dict[str, Any]:
    """COCO 5K and 5-fold 1K, both directions, in one call."""
    members = embeddings(images)
    product = products(members)
    ours, ranks = seconds(lambda: rank_retrieval(members, CAPTIONS, (1, FOLDS)))
    their_product, their_loops, image_ranks, caption_ranks = loops(members)
    # Equal items aside, whose order differs with rounding in float64 and float32.
    is_clear = ~ranks[1].image_to_text.tied_Q[:SAMPLE].numpy()
    is_clear_text = ~ranks[1].text_to_image.tied_Q[: SAMPLE * CAPTIONS].numpy()
    agree = (ranks[1].image_to_text.ranks_Q[:SAMPLE].numpy() == image_ranks)[is_clear].mean()
    agree_text = (ranks[1].text_to_image.ranks_Q[: SAMPLE * CAPTIONS].numpy() == caption_ranks)[is_clear_text].mean()
    return {
        "size": f"{images} x {CAPTIONS * images} x {DIM}",
        "seconds": {
            "ours": round(ours, 2),
            "matrix product alone": round(product, 2),
            "released code, products in float64": round(their_product, 1),
            f"released code, loops, estimated from {SAMPLE} images": round(their_loops, 1),
        },
        "times the matrix product": round(ours / product, 2),
        "times faster than the released code": round((their_product + their_loops) / ours, 1),
        "ranking alone, times faster than the loops": round(their_loops / (ours - product), 1),
        "same ranks as the loops": {"images": round(float(agree), 4), "captions": round(float(agree_text), 4)},
        "memory": rise(partial(memory, images, CAPTIONS, DIM)),
    }


def views_and_ensembles(images: int) -> dict[str, Any]:
    """Three views, and an ensemble of two models: against as many products."""
    result = {}
    cases = {
        "three views": embeddings(images, views=3),
        "ensemble of two": embeddings(images) + embeddings(images, seed=1),
    }
    for name, members in cases.items():
        product = products(members)
        ours, _ = seconds(lambda members=members: rank_retrieval(members, CAPTIONS, (1, FOLDS)))
        result[name] = {
            "seconds": {"ours": round(ours, 2), "matrix products alone": round(product, 2)},
            "times the matrix products": round(ours / product, 2),
        }
        print(name, result[name], flush=True)
    return result


def main() -> None:
    """Measure and write the result; a part by itself is put next to what is there."""
    parts: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
        "coco": lambda given: coco(given.images),
        "views": lambda given: views_and_ensembles(given.images),
    }
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "evaluation.json", help="JSON file for the result")
    parser.add_argument("--part", choices=parts, action="append", help="measure this alone (repeatable; default: all)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--images", type=int, default=5000, help="of COCO's test split")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    there = json.loads(arguments.output.read_text(encoding="utf-8")) if arguments.output.is_file() else {}
    result: dict[str, Any] = {**there, "unit": "seconds; MB of 10**6 bytes"}
    for part in arguments.part or parts:
        result[part] = {**origin(), "threads": arguments.threads, "result": parts[part](arguments)}
        print(part, json.dumps(result[part]["result"], indent=1), flush=True)
        write_json_atomic(arguments.output, result)


if __name__ == "__main__":
    main()

"""A whole training step of a published system on random regions and captions, and what each part of it takes.

Each part is run forwards and backwards by itself on the inputs that it has in the step, in the same run as the step.

Run: python tests/benchmarks/step.py
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from reader import RESULTS, machine
from torch import Tensor, nn

from preprocessing.storage.atomic import write_json_atomic
from vse_core.losses import build_loss
from vse_core.models import build_model
from vse_core.training.optim import build_optimizer
from vse_core.training.step import LocalBatch, training_step

BATCH, REGIONS, WIDTH, DIM, WORDS, VOCABULARY = 128, 36, 2048, 1024, 13, 8481

Work = Callable[[], None]


class Step:
    """VSE-infinity over regions with a BiGRU: one batch, its step, and the parts of the step."""

    def __init__(self, device: str) -> None:
        torch.manual_seed(0)
        gpo = {"name": "gpo"}
        self.device = device
        self.model = build_model(WIDTH, VOCABULARY, DIM, image={"pooling": gpo}, text={"pooling": gpo}).to(device)
        self.loss = build_loss("triplet")
        self.optimizer = build_optimizer(self.model, 5e-4, 0.01)
        # A fifth of the regions is left out of each image; captions are 9 to 17 tokens long.
        kept_B = torch.randint(24, REGIONS, (BATCH,), device=device)
        words_B = torch.randint(WORDS - 4, WORDS + 5, (BATCH,), device=device)
        regions_BNF = torch.rand(BATCH, REGIONS, WIDTH, device=device)
        tokens_BL = torch.randint(4, VOCABULARY, (BATCH, int(words_B.max())), device=device)
        self.inputs = (regions_BNF, kept_B, tokens_BL, words_B)
        self.ids_B = torch.arange(BATCH, device=device)

    def whole(self) -> None:
        """The step as training takes it."""
        training_step(self.model, self.loss, self.optimizer, [LocalBatch(self.inputs, self.ids_B, [BATCH])], 2.0)

    def parts(self) -> dict[str, Work]:
        """Every part, forwards and backwards."""
        _, kept_B, tokens_BL, words_B = self.inputs
        image, text = self.model.image_encoder, self.model.text_encoder
        rows_MF = torch.rand(int(kept_B.sum()), WIDTH, device=self.device)
        regions_BND = torch.randn(BATCH, REGIONS, DIM, device=self.device, requires_grad=True)
        words_BLD = torch.randn(*tokens_BL.shape, DIM, device=self.device, requires_grad=True)
        images_BKD = torch.randn(BATCH, 1, DIM, device=self.device, requires_grad=True)
        texts_BD = torch.randn(BATCH, DIM, device=self.device, requires_grad=True)
        images, texts = (nn.functional.normalize(vectors, dim=-1) for vectors in (images_BKD, texts_BD))
        return {
            "projection of the regions": lambda: _both_ways(image.fc(rows_MF) + image.mlp(rows_MF)),  # type: ignore[operator]
            "GPO over regions": lambda: _both_ways(image.pooling(regions_BND, kept_B)),  # type: ignore[operator]
            "word vectors and BiGRU": lambda: _both_ways(text.states(tokens_BL, words_B)),  # type: ignore[operator]
            "GPO over words": lambda: _both_ways(text.pooling(words_BLD, words_B)),  # type: ignore[operator]
            "loss": lambda: self.loss(images, texts, self.ids_B).total.backward(retain_graph=True),
            "clipping and AdamW": self._update,
        }

    def _update(self) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
        self.optimizer.step()


def _both_ways(result: Tensor) -> None:
    result.sum().backward()


def seconds_of(work: Work, rounds: int, device: str) -> float:
    """Median seconds of one call, after one to warm up."""
    times = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "step.json", help="JSON file for the result")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    step = Step(arguments.device)
    whole = seconds_of(step.whole, arguments.rounds, arguments.device)
    parts = {name: seconds_of(work, arguments.rounds, arguments.device) for name, work in step.parts().items()}
    result: dict[str, Any] = {"command": shlex.join(["python", *sys.argv]), "machine": machine()}
    result |= {
        "threads": arguments.threads,
        "device": arguments.device,
        "seconds_per_step": round(whole, 4),
        "samples_per_second": round(BATCH / whole, 1),
        "parts": {name: {"seconds": round(part, 4), "share": round(part / whole, 3)} for name, part in parts.items()},
        "share_of_the_parts": round(sum(parts.values()) / whole, 3),
    }
    write_json_atomic(arguments.output, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

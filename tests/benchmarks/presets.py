"""Samples a second of a training step of three published presets, in float32 and in bf16, on the same random batch.

On a GPU steps are replayed from CUDA graphs. Next to them the straightforward implementation in the same run: plain
PyTorch as one would write it down from the paper, with a GRU for the ranks of every set, images in PyTorch's usual
layout, a batch that is copied when it is needed, and a loss that is printed, and so waited for, in every step.

Run: python tests/benchmarks/presets.py --device cuda
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from reader import RESULTS, origin
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torchvision.models import resnet101
from transformers import BertConfig, BertModel

from pipelines.training.metrics import Scalars
from preprocessing.loading.batch import Batch, prefetch_to_device
from preprocessing.storage.atomic import write_json_atomic
from vse_core.losses import build_loss
from vse_core.models import build_model
from vse_core.precision import use_tf32
from vse_core.training.graphs import GraphedSteps
from vse_core.training.mixed_precision import MixedPrecision
from vse_core.training.optim import build_optimizer
from vse_core.training.step import LocalBatch, StepResult, training_step

MARGIN, CLIP, RATE = 0.2, 2.0, 5e-4


@dataclass(frozen=True)
class Sizes:
    """Sizes of the models and batches: as published, or small enough for any CPU."""

    batch: int = 128
    grid_batch: int = 64
    regions: int = 36
    width: int = 2048
    dim: int = 1024
    word_dim: int = 300
    words: int = 13
    vocabulary: int = 8481
    side: int = 512
    bert: tuple[int, int, int] = (12, 768, 12)  # layers, width, heads

    def bert_config(self) -> dict[str, Any]:
        """BERT-base, or a small one."""
        layers, width, heads = self.bert
        return {
            "model_type": "bert",
            "vocab_size": self.vocabulary,
            "num_hidden_layers": layers,
            "hidden_size": width,
            "num_attention_heads": heads,
            "intermediate_size": 4 * width,
        }


TINY = Sizes(4, 2, 6, 32, 16, 8, 5, 50, 64, (1, 16, 2))
PRESETS = {
    "regions and BiGRU": ("regions", "bigru"),
    "regions and BERT": ("regions", "bert"),
    "grid": ("grid", "bigru"),
}


def make_batch(sizes: Sizes, image: str) -> Batch:
    """Random images and captions, on the host."""
    pairs = sizes.grid_batch if image == "grid" else sizes.batch
    if image == "grid":
        images = torch.randint(0, 256, (pairs, 3, sizes.side, sizes.side), dtype=torch.uint8)
        elements = torch.rand(pairs, (sizes.side // 32) ** 2) < 0.8
        elements[:, 0] = True
    else:
        images = torch.rand(pairs, sizes.regions, sizes.width).half()
        elements = torch.randint(sizes.regions * 2 // 3, sizes.regions + 1, (pairs,))
    tokens_BL = torch.randint(4, sizes.vocabulary, (pairs, sizes.words + 4))
    lengths_B = torch.randint(sizes.words - 4, sizes.words + 5, (pairs,))
    return Batch(images, elements, tokens_BL, lengths_B, torch.arange(pairs), torch.arange(pairs))


class Ours:
    """A preset as the trainer runs it.

    Args:
        sizes: of everything.
        image: ``regions`` or ``grid``.
        text: ``bigru`` or ``bert``.
        precision: see :class:`MixedPrecision`.
        device: where it computes.
    """

    def __init__(self, sizes: Sizes, image: str, text: str, precision: Any, device: torch.device) -> None:
        torch.manual_seed(0)
        gpo = {"pooling": {"name": "gpo"}}
        images: dict[str, Any] = gpo
        if image == "grid":
            images = gpo | {"name": "backbone", "architecture": "resnet101", "image_size": sizes.side}
        texts = gpo | {"name": "bert", "architecture": sizes.bert_config()}
        if text == "bigru":
            texts = gpo | {"word_dim": sizes.word_dim}
        width = None if image == "grid" else sizes.width
        self.model = build_model(width, sizes.vocabulary, sizes.dim, images, texts).to(device).train()
        self.loss = build_loss("triplet", margin=MARGIN)
        self.device, is_graphed = device, device.type == "cuda"
        optimizer = build_optimizer(self.model, RATE, 1e-4, capturable=is_graphed)
        mixed = MixedPrecision(precision, device)
        self.take: Callable[[Any, list[LocalBatch], bool], StepResult] = (
            GraphedSteps(self.model, optimizer, CLIP, mixed)
            if is_graphed
            else lambda loss, batches, _: training_step(self.model, loss, optimizer, batches, CLIP, mixed)
        )

    def run(self, batch: Batch, steps: int) -> None:
        """Take steps, each with a fresh copy of the batch, reading the loss of the one before."""
        before = None
        for copied in prefetch_to_device(itertools.repeat(batch, steps), self.device):
            inputs = (copied.images, copied.lengths_or_mask, copied.tokens_BL, copied.token_lengths_B)
            share = LocalBatch(inputs, copied.image_indices_B, [len(copied)])
            result = self.take(self.loss, [share], False)
            if before is not None:
                before.read()
            before = Scalars(result)


class Straightforward:
    """The same in plain PyTorch and float32. Arguments are those of :class:`Ours`."""

    def __init__(self, sizes: Sizes, image: str, text: str, device: torch.device) -> None:
        torch.manual_seed(0)
        self.model = PlainTowers(sizes, image, text).to(device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, weight_decay=1e-4)
        self.device = device

    def run(self, batch: Batch, steps: int) -> None:
        """Take steps, each with a fresh copy of the batch, reading each loss."""
        for _ in range(steps):
            inputs = (batch.images, batch.lengths_or_mask, batch.tokens_BL, batch.token_lengths_B)
            images_BD, texts_BD = self.model(*(tensor.to(self.device) for tensor in inputs))
            scores_BB = images_BD @ texts_BD.T
            positive_B1 = scores_BB.diagonal().view(-1, 1)
            own_BB = torch.eye(len(scores_BB), device=self.device) > 0.5
            captions_BB = (MARGIN + scores_BB - positive_B1).clamp(min=0).masked_fill(own_BB, 0)
            images_BB = (MARGIN + scores_BB - positive_B1.T).clamp(min=0).masked_fill(own_BB, 0)
            loss = captions_BB.max(1)[0].sum() + images_BB.max(0)[0].sum()
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self.optimizer.step()
            float(loss.item())


class PlainTowers(nn.Module):
    """Both towers of VSE-infinity."""

    def __init__(self, sizes: Sizes, image: str, text: str) -> None:
        super().__init__()
        self.image: nn.Module = PlainGrid(sizes) if image == "grid" else PlainRegions(sizes)
        self.text: nn.Module = PlainBert(sizes) if text == "bert" else PlainGRU(sizes)

    def forward(self, images: Tensor, elements: Tensor, tokens_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Unit vectors (B, D) of the images and of the captions."""
        return self.image(images, elements), self.text(tokens_BL, lengths_B)


class PlainGPO(nn.Module):
    """A GRU over the ranks of every set of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(32, 32, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(32, 1, bias=False)

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """Pool into unit vectors (B, D)."""
        size = features_BND.shape[1]
        places_N1 = torch.arange(size, dtype=torch.float32).unsqueeze(1)
        angles = places_N1 * torch.exp(torch.arange(0, 32, 2) * (-math.log(10000.0) / 32))
        codes_NP = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).to(features_BND)
        codes = codes_NP.repeat(len(lengths_B), 1, 1)
        packed = pack_padded_sequence(codes, lengths_B.cpu(), batch_first=True, enforce_sorted=False)
        states = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=size)[0]
        states = (states[..., :32] + states[..., 32:]) / 2
        mask_BN1 = (torch.arange(size, device=lengths_B.device) < lengths_B.unsqueeze(1)).unsqueeze(-1)
        weights_BN1 = (self.linear(states).masked_fill(~mask_BN1, -10000) / 0.1).softmax(dim=1)
        ranked_BND = features_BND.masked_fill(~mask_BN1, -10000).sort(dim=1, descending=True)[0]
        pooled_BD = (ranked_BND.masked_fill(~mask_BN1, 0) * weights_BN1).sum(dim=1)
        return nn.functional.normalize(pooled_BD, dim=-1)


class PlainRegions(nn.Module):
    """A linear layer, and an MLP next to it."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        half = sizes.dim // 2
        self.fc = nn.Linear(sizes.width, sizes.dim)
        self.hidden, self.norm, self.out = (
            nn.Linear(sizes.width, half),
            nn.BatchNorm1d(half),
            nn.Linear(half, sizes.dim),
        )
        self.pool = PlainGPO()

    def forward(self, features_BNF: Tensor, lengths_B: Tensor) -> Tensor:
        """Features to unit vectors."""
        features_BNF = features_BNF.float()
        hidden = self.hidden(features_BNF)
        hidden = self.norm(hidden.flatten(0, 1)).view_as(hidden)
        return self.pool(self.fc(features_BNF) + self.out(torch.relu(hidden)), lengths_B)  # type: ignore[no-any-return]


class PlainGrid(nn.Module):
    """A ResNet-101, a linear layer; cells that are left out are gathered at the end."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        network = resnet101(weights=None)
        self.network = nn.Sequential(*list(network.children())[:-2])
        self.fc, self.pool = nn.Linear(2048, sizes.dim), PlainGPO()

    def train(self, mode: bool = True) -> PlainGrid:
        """Batch norms keep their statistics."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self

    def forward(self, pixels_BCHW: Tensor, kept_BN: Tensor) -> Tensor:
        """Pixels to unit vectors."""
        cells_BNF = self.network((pixels_BCHW.float() - 118) / 57).flatten(2).transpose(1, 2)
        rows = [cells_NF[kept_N] for cells_NF, kept_N in zip(cells_BNF, kept_BN, strict=True)]
        return self.pool(self.fc(nn.utils.rnn.pad_sequence(rows, batch_first=True)), kept_BN.sum(dim=1))  # type: ignore[no-any-return]


class PlainGRU(nn.Module):
    """Word vectors and a bidirectional GRU."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embed, self.pool = nn.Embedding(sizes.vocabulary, sizes.word_dim), PlainGPO()
        self.gru = nn.GRU(sizes.word_dim, sizes.dim, batch_first=True, bidirectional=True)

    def forward(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Words to unit vectors."""
        packed = pack_padded_sequence(self.embed(tokens_BL), lengths_B.cpu(), batch_first=True, enforce_sorted=False)
        states = pad_packed_sequence(self.gru(packed)[0], batch_first=True)[0]
        forward, backward = states.chunk(2, dim=-1)
        return self.pool((forward + backward) / 2, lengths_B)  # type: ignore[no-any-return]


class PlainBert(nn.Module):
    """BERT and a linear layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        options = {key: value for key, value in sizes.bert_config().items() if key != "model_type"}
        self.bert = BertModel(BertConfig(**options), add_pooling_layer=False)
        self.linear, self.pool = nn.Linear(options["hidden_size"], sizes.dim), PlainGPO()

    def forward(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Tokens to unit vectors."""
        mask_BL = torch.arange(tokens_BL.shape[1], device=tokens_BL.device) < lengths_B.unsqueeze(1)
        states = self.bert(input_ids=tokens_BL, attention_mask=mask_BL.long()).last_hidden_state
        return self.pool(self.linear(states), lengths_B)  # type: ignore[no-any-return]


def wait(device: torch.device) -> None:
    """Until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(work: Callable[[], None], device: torch.device) -> float:
    """Seconds until the device has done the work."""
    wait(device)
    began = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - began


def measure(system: Ours | Straightforward, batch: Batch, rounds: int, steps: int) -> dict[str, Any]:
    """Samples a second, the median of rounds of steps; and memory."""
    device = system.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    system.run(batch, 4)
    seconds = statistics.median(timed(lambda: system.run(batch, steps), device) for _ in range(rounds)) / steps
    found: dict[str, Any] = {
        "seconds_per_step": round(seconds, 4),
        "samples_per_second": round(len(batch) / seconds, 1),
    }
    if device.type == "cuda":
        found["peak_memory_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
    return found


def precisions(device: torch.device) -> Iterator[str]:
    """Return the precisions to measure: TF32 is a mode of GPUs."""
    yield "float32"
    if device.type == "cuda":
        yield "tf32"
    yield "bf16"


def compare(sizes: Sizes, preset: str, device: torch.device, rounds: int, steps: int) -> dict[str, Any]:
    """One preset in all precisions, and the straightforward implementation."""
    image, text = PRESETS[preset]
    batch = make_batch(sizes, image)
    use_tf32(False)
    plain = measure(Straightforward(sizes, image, text, device), batch, rounds, steps)
    found: dict[str, Any] = {"batch": len(batch), "straightforward": plain}
    for precision in precisions(device):
        use_tf32(precision == "tf32")
        loaded = batch.pin() if device.type == "cuda" else batch  # which the loader does meanwhile
        ours = measure(Ours(sizes, image, text, precision, device), loaded, rounds, steps)
        ours["times_straightforward"] = round(plain["seconds_per_step"] / ours["seconds_per_step"], 3)
        found[precision] = ours
    use_tf32(False)
    return found


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "presets.json", help="JSON file for the result")
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="steps a round")
    parser.add_argument("--tiny", action="store_true", help="everything small: to see that it runs, on a CPU too")
    arguments = parser.parse_args()
    device, sizes = torch.device(arguments.device), TINY if arguments.tiny else Sizes()
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    measured: dict[str, Any] = {"device": name, **origin()}
    output = arguments.output
    result = json.loads(output.read_text(encoding="utf-8")) if output.is_file() else {"presets": {}}
    for preset in PRESETS:
        result["presets"][preset] = measured | compare(sizes, preset, device, arguments.rounds, arguments.steps)
        write_json_atomic(output, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

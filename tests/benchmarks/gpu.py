"""Time of recurrences and of the networks that extract features, on a GPU.

Recurrences are timed unpacked, as they are computed, and packed.
Networks have their published sizes and random weights; pixels come from the host and features go back to it, as in an
actor. Decoding is timed by itself, in one thread.

Run: python tests/benchmarks/gpu.py --photographs FOLDER
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from reader import RESULTS, origin
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import ViTConfig, ViTImageProcessor

from preprocessing.features.grid import GridExtractor, PatchExtractor, StateExtractor
from preprocessing.features.networks import Network, PixelsCHW
from preprocessing.storage.atomic import write_json_atomic
from vse_core.precision import use_tf32
from vse_core.recurrent import unpacked_states
from vse_core.training.mixed_precision import MixedPrecision

DEVICE = "cuda"
# Sequences, elements of the longest, width of an element and of the states.
RECURRENCES = {
    "BiGRU over 17 words, B = 128, H = 1024": (128, 17, 300, 1024),
    "GPO's GRU over 36 ranks, H = 32": (8, 36, 32, 32),
    "GPO's GRU over 196 ranks, H = 32": (36, 196, 32, 32),
}


def median_ms(work: Callable[[], Any], rounds: int) -> float:
    """Median milliseconds of the device, after three calls to warm up."""
    times = []
    for turn in range(rounds + 3):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        work()
        ended.record()
        torch.cuda.synchronize()
        if turn >= 3:
            times.append(begun.elapsed_time(ended))
    return statistics.median(times)


def recurrences(rounds: int) -> dict[str, Any]:
    """Milliseconds of a recurrence and its gradient, in each precision."""
    found: dict[str, Any] = {}
    for name, (batch, size, width, states) in RECURRENCES.items():
        torch.manual_seed(0)
        gru = nn.GRU(width, states, batch_first=True, bidirectional=True).to(DEVICE)
        inputs_BNE = torch.randn(batch, size, width, device=DEVICE, requires_grad=True)
        lengths_B = torch.randint(size * 4 // 5, size + 1, (batch,), device=DEVICE).index_fill(
            0, torch.tensor(0, device=DEVICE), size
        )
        found[name] = {}
        for precision in ("float32", "tf32", "bf16"):
            use_tf32(precision == "tf32")
            autocast = MixedPrecision("bf16" if precision == "bf16" else "float32", DEVICE).autocast
            found[name][precision] = {
                way: round(median_ms(partial(_step, states_of, autocast, gru, inputs_BNE, lengths_B), rounds), 2)
                for way, states_of in (("packed", packed_states), ("unpacked", unpacked_states))
            }
    use_tf32(False)
    return found


def packed_states(gru: nn.GRU, inputs_BNE: Tensor, lengths_B: Tensor) -> Tensor:
    """Mean states of both directions, as PyTorch's documentation has a user compute them."""
    packed = pack_padded_sequence(inputs_BNE, lengths_B.cpu(), batch_first=True, enforce_sorted=False)
    states: Tensor = pad_packed_sequence(gru(packed)[0], batch_first=True)[0]
    return states.unflatten(2, (2, -1)).mean(dim=2)


def _step(states_of: Callable[..., Tensor], autocast: Callable[[], Any], *inputs: Any) -> None:
    with autocast():
        states_BNH = states_of(*inputs)
    states_BNH.float().sum().backward()


def vit_folder(folder: Path) -> str:
    """A folder of ViT-B/16's configuration, without weights."""
    ViTConfig().save_pretrained(folder)
    ViTImageProcessor(size={"height": 224, "width": 224}).save_pretrained(folder)
    return str(folder)


def extractors(folder: Path) -> dict[str, Callable[[str], StateExtractor]]:
    """Extractors by name, each for a type of numbers."""
    grid: dict[str, Any] = {"network": "resnet101", "seed": 0, "device": DEVICE}
    vit = vit_folder(folder)
    return {
        "grid, ResNet-101, 512 pixels": lambda dtype: GridExtractor(image_size=512, dtype=dtype, **grid),
        "grid, ResNeXt-101 32x8d, 512 pixels": lambda dtype: GridExtractor(
            image_size=512, dtype=dtype, **grid | {"network": "resnext101_32x8d"}
        ),
        "patches, ViT-B/16, 224 pixels": lambda dtype: PatchExtractor(vit, device=DEVICE, seed=0, dtype=dtype),
    }


def extraction(photographs: list[str], batch: int, rounds: int) -> dict[str, Any]:
    """Images a second of each network, and of decoding and resizing for it in one thread."""
    found: dict[str, Any] = {}
    uris = [photographs[number % len(photographs)] for number in range(batch)]
    with tempfile.TemporaryDirectory() as folder:
        for name, build in extractors(Path(folder)).items():
            rates: dict[str, float] = {}
            for dtype in ("float32", "bfloat16"):
                extractor = build(dtype)
                began = time.perf_counter()
                items = [extractor.load(uri) for uri in uris]
                rates["decoding, one thread"] = round(batch / (time.perf_counter() - began), 1)
                network = extractor._network
                seconds = median_ms(partial(_features, network, items), rounds) / 1e3
                rates[dtype] = round(batch / seconds, 1)
                pixels = torch.stack([torch.from_numpy(item) for item in items]).to(DEVICE, network.dtype)
                pixels = pixels.to(memory_format=torch.channels_last)
                with torch.inference_mode():
                    seconds = median_ms(partial(network.forward, pixels), rounds) / 1e3
                rates[f"{dtype}, the network alone"] = round(batch / seconds, 1)
            found[name] = rates
    return found


def _features(network: Network, items: Sequence[PixelsCHW]) -> list[Tensor]:
    return [state.half().cpu() for state in network.states(items)]


def main() -> None:
    """Measure and write the result."""
    use_tf32(False)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu.json", help="JSON file for the result")
    parser.add_argument("--photographs", type=Path, required=True, help="folder of JPEG files")
    parser.add_argument("--batch", type=int, default=64, help="images of a batch")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    photographs = sorted(str(path) for path in arguments.photographs.glob("*.jpg"))
    result = origin()
    result["device"] = torch.cuda.get_device_name()
    result["recurrences"] = recurrences(arguments.rounds)
    result["extraction"] = extraction(photographs, arguments.batch, arguments.rounds)
    write_json_atomic(arguments.output, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

"""What a GPU makes of GPO and of the networks that extract features: shares of memory bandwidth, images a second.

GPO is timed against that of the released code, forwards and backwards, on sets of mixed sizes. It must at least read
the features, and backwards read their order and write the gradient: the share of bandwidth is these bytes over the time
and the rate of a large copy on the same device. Networks have their published sizes and random weights; pixels come
from the host and features go back to it, as in an actor. Decoding is timed by itself, in one thread.

Run: git clone --branch bigru https://github.com/woodfrog/vse_infty FOLDER
     python tests/benchmarks/gpu.py --released FOLDER --photographs FOLDER
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from reader import RESULTS, machine
from torch import Tensor
from transformers import ViTConfig, ViTImageProcessor

from preprocessing.features.grid import GridExtractor
from preprocessing.features.patches import PatchExtractor
from preprocessing.features.state_extractor import StateExtractor
from preprocessing.storage.atomic import write_json_atomic
from vse_core.pooling.gpo import GeneralizedPooling
from vse_core.precision import use_tf32

DEVICE = "cuda"
SIZES = [(128, 36, 1024), (128, 196, 1024), (512, 49, 512), (1024, 36, 1024)]
COPIED_BYTES = 2**30


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


def bandwidth(rounds: int) -> float:
    """Bytes a second, read and written, of a large copy on the device."""
    source = torch.rand(COPIED_BYTES // 4, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * COPIED_BYTES / median_ms(lambda: target.copy_(source), rounds) * 1e3


def gpo(released: Path, rounds: int) -> dict[str, Any]:
    """Milliseconds of both, forwards alone and with the backward pass, and shares of bandwidth."""
    sys.path.insert(0, str(released))
    from lib.modules.aggr.gpo import GPO  # type: ignore[import-not-found]

    rate = bandwidth(rounds)
    found: dict[str, Any] = {"copy_gigabytes_per_second": round(rate / 1e9)}
    for batch, size, dim in SIZES:
        torch.manual_seed(0)
        features_BND = torch.randn(batch, size, dim, device=DEVICE, requires_grad=True)
        lengths_B = torch.randint(size * 4 // 5, size + 1, (batch,), device=DEVICE)
        ours, theirs = GeneralizedPooling().to(DEVICE), GPO(32, 32).to(DEVICE)
        theirs.load_state_dict(ours.state_dict())
        pools: dict[str, Callable[[], Tensor]] = {
            "ours": lambda o=ours, f=features_BND, n=lengths_B: o(f, n),  # type: ignore[misc]
            "released": lambda o=theirs, f=features_BND, n=lengths_B: o(f, n)[0],  # type: ignore[misc]
        }
        assert torch.allclose(pools["ours"](), pools["released"](), atol=1e-4)
        times = {name: _both_passes(pool, rounds) for name, pool in pools.items()}
        features = 4 * features_BND.numel()
        # The order that the backward pass reads has eight bytes an element.
        least = {"forward": features, "forward and backward": 4 * features}
        found[f"{batch} x {size} x {dim}"] = {
            "milliseconds": {
                name: {way: round(spent, 3) for way, spent in by_way.items()} for name, by_way in times.items()
            },
            "times_faster": {way: round(times["released"][way] / spent, 2) for way, spent in times["ours"].items()},
            "share_of_bandwidth": {
                name: {way: round(least[way] / (spent / 1e3) / rate, 3) for way, spent in by_way.items()}
                for name, by_way in times.items()
            },
        }
    return found


def _both_passes(pool: Callable[[], Tensor], rounds: int) -> dict[str, float]:
    def forward() -> None:
        with torch.no_grad():
            pool()

    return {
        "forward": median_ms(forward, rounds),
        "forward and backward": median_ms(lambda: pool().sum().backward(), rounds),
    }


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
                seconds = median_ms(lambda n=network, i=items: _to_host(n.states(i)), rounds) / 1e3  # type: ignore[misc]
                rates[dtype] = round(batch / seconds, 1)
                pixels = torch.stack([torch.from_numpy(item) for item in items]).to(DEVICE, network.dtype)
                pixels = pixels.to(memory_format=torch.channels_last)
                with torch.inference_mode():
                    seconds = median_ms(lambda n=network, p=pixels: n.forward(p), rounds) / 1e3  # type: ignore[misc]
                rates[f"{dtype}, the network alone"] = round(batch / seconds, 1)
            found[name] = rates
    return found


def _to_host(states: list[Tensor]) -> list[Tensor]:
    return [state.half().cpu() for state in states]


def main() -> None:
    """Measure and write the result."""
    use_tf32(False)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu.json", help="JSON file for the result")
    parser.add_argument("--released", type=Path, required=True, help="checkout of the released code, branch bigru")
    parser.add_argument("--photographs", type=Path, required=True, help="folder of JPEG files")
    parser.add_argument("--batch", type=int, default=64, help="images of a batch")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    photographs = sorted(str(path) for path in arguments.photographs.glob("*.jpg"))
    result: dict[str, Any] = {"command": shlex.join(["python", *sys.argv]), "machine": machine()}
    result["device"] = torch.cuda.get_device_name()
    result["gpo"] = gpo(arguments.released, arguments.rounds)
    result["extraction"] = extraction(photographs, arguments.batch, arguments.rounds)
    write_json_atomic(arguments.output, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

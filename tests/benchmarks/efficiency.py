"""Cost of retrieval: a query over the size of the gallery, against cross-attention; aggregators; parameters, FLOPs.

As VSE-infinity's figure 3 and VSE+2AD's tables 2 and 4, with random weights and made embeddings, which take the time of
real ones. A query is one vector at a time; times are medians by the clock. The cross-attention model is of the size of
BERT base: it reads a query together with each item of the gallery, which is timed on a few pairs and multiplied.

Run: python tests/benchmarks/efficiency.py [--quick] [--part queries|cross|aggregators|models] [--threads N]

Writes results/efficiency.json and, of all that is in it, results/efficiency.png. Full sizes need about 12 GB of memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from efficiency_plot import draw
from reader import RESULTS, origin
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from preprocessing.storage.atomic import write_json_atomic
from vse_core.evaluation.nearest import top_k
from vse_core.models import build_model
from vse_core.pooling import POOLINGS, build_pooling

K = 10
SETS, REGIONS, DIM = 128, 36, 1024
# Regions of an image and tokens of a caption (COCO's have 11 words), special ones included.
FEATURES, TOKENS, WORDS, BERT_WORDS = 2048, 14, 11_755, 30_522
# Inverted lists looked at, of as many as the root of the gallery's size; HNSW's neighbours and its breadth of search.
PROBES, NEIGHBOURS, BREADTH = 16, 32, 64
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "adpool": [{"variant": name} for name in ("corrected", "release", "paper")],
    "gcn": [{"readout": name} for name in ("mean", "seq2seq")],
}

Search = Callable[[Tensor], Any]


def make_gallery(size: int, dim: int) -> Tensor:
    """Unit vectors (size, dim) around a thousand centres; without any structure an index could find nothing."""
    generator = torch.Generator().manual_seed(0)
    centres = nn.functional.normalize(torch.randn(1000, dim, generator=generator), dim=1)
    gallery = torch.empty(size, dim)
    for chunk in gallery.split(10_000):
        noise = nn.functional.normalize(torch.randn(chunk.shape, generator=generator), dim=1)
        chunk.copy_(centres[torch.randint(1000, (len(chunk),), generator=generator)]).add_(noise, alpha=0.8)
        chunk.div_(chunk.norm(dim=1, keepdim=True))
    return gallery


def make_queries(gallery: Tensor, count: int) -> Tensor:
    """Unit vectors (count, dim) near some of the gallery's."""
    generator = torch.Generator().manual_seed(1)
    near = gallery[torch.randint(len(gallery), (count,), generator=generator)]
    noise = nn.functional.normalize(torch.randn(near.shape, generator=generator), dim=1)
    return nn.functional.normalize(near + 0.8 * noise, dim=1)


def matrix_product(gallery: Tensor) -> Search:
    """The bare product and torch.topk."""
    return lambda query_1D: torch.topk(query_1D @ gallery.T, K).indices


def ours(gallery: Tensor) -> Search:
    """This library's exact search, which settles ties by the order of the gallery."""
    return lambda query_1D: top_k(query_1D.unsqueeze(0), gallery.unsqueeze(1), K)[1]


def flat(gallery: Tensor) -> Search:
    """FAISS, exact."""
    index = faiss.IndexFlatIP(gallery.shape[1])
    index.add(gallery.numpy())
    return partial(_searched, index)


def inverted_lists(gallery: Tensor) -> Search:
    """FAISS IVF: k-means lists, of which the nearest are searched."""
    lists = round(len(gallery) ** 0.5)
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(gallery.shape[1]), gallery.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.niter, index.nprobe = 10, PROBES
    index.train(gallery[torch.randperm(len(gallery))[: 40 * lists]].numpy())
    index.add(gallery.numpy())
    return partial(_searched, index)


def graph(gallery: Tensor) -> Search:
    """FAISS HNSW: a walk over a graph of neighbours."""
    index = faiss.IndexHNSWFlat(gallery.shape[1], NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efSearch = BREADTH
    index.add(gallery.numpy())
    return partial(_searched, index)


def _searched(index: Any, query_1D: Tensor) -> Any:
    return index.search(query_1D.numpy(), K)[1]


WAYS: dict[str, Callable[[Tensor], Search]] = {
    "matrix product and top-k": matrix_product,
    "this library, exact": ours,
    "FAISS flat, exact": flat,
    "FAISS IVF": inverted_lists,
    "FAISS HNSW": graph,
}


def milliseconds(work: Callable[[], Any], rounds: int) -> float:
    """Median time of a piece of work by the clock, the first one left out."""
    spent = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        work()
        spent.append(1e3 * (time.perf_counter() - started))
    return statistics.median(spent[1:])


def query_times(given: argparse.Namespace) -> dict[str, Any]:
    """Time of a query in galleries of each size, and which share of the true first ten it finds."""
    result: dict[str, Any] = {"dimensions": given.dim, "queries": given.queries, "sizes": {}}
    for size in given.sizes:
        gallery = make_gallery(size, given.dim)
        queries_QD = make_queries(gallery, given.queries)
        true = [set(torch.topk(query_D @ gallery.T, K).indices.tolist()) for query_D in queries_QD]
        found: dict[str, Any] = {}
        for name, build in WAYS.items():
            if build is graph and size > given.hnsw_limit:
                continue
            started = time.perf_counter()
            search = build(gallery)
            building = time.perf_counter() - started
            answers = [np.asarray(search(query_D.unsqueeze(0))).ravel().tolist() for query_D in queries_QD]
            turns = iter([*queries_QD.split(1), *queries_QD.split(1)])
            found[name] = {
                "milliseconds": round(milliseconds(lambda s=search, t=turns: s(next(t)), given.queries), 4),
                "recall_at_10": round(statistics.mean(len(true[q] & set(a)) / K for q, a in enumerate(answers)), 4),
                "building_seconds": round(building, 2),
            }
            print(f"{size:,}", name, found[name], flush=True)
        result["sizes"][str(size)] = found
    return result


class CrossAttention(nn.Module):
    """BERT base over the regions of an image and the words of a caption together, and a score."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        self.regions = nn.Linear(FEATURES, 768)
        self.bert: Any = BertModel(BertConfig(), add_pooling_layer=False)
        self.score = nn.Linear(768, 1)

    def forward(self, features_PNF: Tensor, tokens_PL: Tensor) -> Tensor:
        """Scores (P,) of P pairs."""
        words_PLH = self.bert.embeddings.word_embeddings(tokens_PL)
        both = torch.cat([self.regions(features_PNF), words_PLH], dim=1)
        scores: Tensor = self.score(self.bert(inputs_embeds=both).last_hidden_state[:, 0]).squeeze(-1)
        return scores


@torch.inference_mode()
def cross_attention(given: argparse.Namespace) -> dict[str, Any]:
    """Time of one pair, measured on a batch of some."""
    model = CrossAttention().eval()
    inputs = (torch.randn(given.pairs, REGIONS, FEATURES), torch.randint(BERT_WORDS, (given.pairs, TOKENS)))
    a_pair = milliseconds(lambda: model(*inputs), given.rounds) / given.pairs
    return {
        "measured on pairs": given.pairs,
        "milliseconds a pair": round(a_pair, 3),
        "a query": "milliseconds a pair times the size of the gallery: every item is read together with the query",
        "parameters": _parameters(model),
        "FLOPs a pair": _flops(lambda: model(*(part[:1] for part in inputs))),
    }


@torch.inference_mode()
def aggregators(given: argparse.Namespace) -> dict[str, Any]:
    """Sets of 36 vectors a second that every aggregator makes one vector of."""
    torch.manual_seed(0)
    features_BND, lengths_B = torch.randn(SETS, REGIONS, DIM), torch.full((SETS,), REGIONS)
    result: dict[str, Any] = {"sets": f"{SETS} x {REGIONS} x {DIM}", "items_per_second": {}}
    for name in POOLINGS:
        for options in OPTIONS.get(name, [{}]):
            pool = build_pooling(name, DIM, **options).eval()
            spent = milliseconds(lambda pool=pool: pool(features_BND, lengths_B), given.rounds)
            label = " ".join([name, *options.values()])
            result["items_per_second"][label] = round(1e3 * SETS / spent)
            print(label, result["items_per_second"][label], flush=True)
    return result


SYSTEMS: dict[str, dict[str, Any]] = {
    "VSE++": {"pooling": {"name": "mean"}},
    "VSE-infinity": {"pooling": {"name": "gpo"}},
    "MV-VSE": {"pooling": {"name": "gpo"}, "views": 3},
    "VSE+2AD": {"pooling": {"name": "adpool"}},
}
TEXTS: dict[str, tuple[int, dict[str, Any]]] = {
    "BiGRU": (WORDS, {"name": "bigru", "word_dim": 300}),
    "BERT": (BERT_WORDS, {"name": "bert", "architecture": {"model_type": "bert"}}),
}


@torch.inference_mode()
def models(given: argparse.Namespace) -> dict[str, Any]:
    """Parameters, FLOPs and time of one image of 36 regions and of one caption."""
    result: dict[str, Any] = {"FLOPs": "two for each product and sum of matrices; sorts and element-wise work left out"}
    for system, image in SYSTEMS.items():
        for side, (words, text) in TEXTS.items():
            pooling = image["pooling"]
            model = build_model(FEATURES, words, DIM, {"mlp": True, **image}, {**text, "pooling": pooling}).eval()
            regions, tokens = torch.randn(1, REGIONS, FEATURES), torch.randint(words, (1, TOKENS))
            encode_image = partial(model.encode_images, regions, torch.tensor([REGIONS]))
            encode_text = partial(model.encode_texts, tokens, torch.tensor([TOKENS]))
            result[f"{system}, {side}"] = {
                "parameters": {
                    "image": _parameters(model.image_encoder),
                    "text": _parameters(model.text_encoder),
                },
                "FLOPs": {"image": _flops(encode_image), "caption": _flops(encode_text)},
                "milliseconds": {
                    "image": round(milliseconds(encode_image, given.rounds), 2),
                    "caption": round(milliseconds(encode_text, given.rounds), 2),
                },
            }
            print(system, side, result[f"{system}, {side}"], flush=True)
    return result


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _flops(work: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def print_tables(result: dict[str, Any]) -> None:
    """The figures that people compare, as tables."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    if "queries" in result:
        # A file that was read has its keys in alphabetical order.
        sizes = {int(size): found for size, found in result["queries"]["result"]["sizes"].items()}
        table = Table("a query, ms (recall at 10)", *(f"{size:,}" for size in sorted(sizes)), title="gallery size")
        for way in WAYS:
            cells = (sizes[size].get(way) for size in sorted(sizes))
            table.add_row(way, *(f"{c['milliseconds']:.3g} ({c['recall_at_10']:.2f})" if c else "" for c in cells))
        if "cross" in result:
            pair = result["cross"]["result"]["milliseconds a pair"]
            table.add_row("cross-attention (BERT base), estimated", *(f"{pair * s:,.0f}" for s in sorted(sizes)))
        console.print(table)
    if "models" in result:
        columns = {
            "image, M parameters": ("parameters", "image", 1e6),
            "text, M parameters": ("parameters", "text", 1e6),
            "image, GFLOPs": ("FLOPs", "image", 1e9),
            "caption, GFLOPs": ("FLOPs", "caption", 1e9),
            "image, ms": ("milliseconds", "image", 1),
            "caption, ms": ("milliseconds", "caption", 1),
        }
        table = Table("model", *columns)
        for name, found in sorted(result["models"]["result"].items()):
            if isinstance(found, dict):
                table.add_row(name, *(f"{found[kind][side] / unit:.3g}" for kind, side, unit in columns.values()))
        console.print(table)


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "queries": query_times,
    "cross": cross_attention,
    "aggregators": aggregators,
    "models": models,
}


def main() -> None:
    """Measure and write the result; a part by itself is put next to what is there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--output", type=Path, default=RESULTS / "efficiency.json", help="JSON file; the plot beside it"
    )
    parser.add_argument("--part", choices=PARTS, action="append", help="measure this alone (repeatable; default: all)")
    parser.add_argument("--quick", action="store_true", help="small sizes, for a try")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sizes", type=int, nargs="+", help="of the gallery (default: 1000 to 1000000)")
    parser.add_argument("--dim", type=int, help=f"of the embeddings (default: {DIM})")
    parser.add_argument("--hnsw-limit", type=int, default=100_000, help="largest gallery that HNSW is built of")
    given = parser.parse_args()
    given.sizes = given.sizes or ([1000, 5000] if given.quick else [1000, 10_000, 100_000, 1_000_000])
    given.dim = given.dim or (128 if given.quick else DIM)
    given.queries, given.pairs, given.rounds = (10, 2, 2) if given.quick else (50, 16, 10)
    torch.set_num_threads(given.threads)
    faiss.omp_set_num_threads(given.threads)
    there = json.loads(given.output.read_text(encoding="utf-8")) if given.output.is_file() else {}
    result: dict[str, Any] = {**there, "unit": "milliseconds by the clock, medians"}
    for part in given.part or PARTS:
        result[part] = {**origin(), "threads": given.threads, "result": PARTS[part](given)}
        write_json_atomic(given.output, result)
    print_tables(result)
    draw(result).savefig(given.output.with_suffix(".png"), dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    main()

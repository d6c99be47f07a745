"""Requests a second and latency of the search service, at 1, 8 and 50 clients, next to the bare work in one process.

The service is the real one, with the model in the command's own process and with one replica on Ray Serve. Clients are
threads of another process, each with one connection that it keeps; queries are the captions and the images of the
gallery, in turn. The reference embeds the same queries one by one and searches the same index in this process, and
nothing else.

Run: python tests/benchmarks/serving.py --model flickr8k
A run is added to the others; the table has their medians.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # after this folder, whose neighbours are imported by their own names

from pipelines.runtime.cluster import keep_memory  # noqa: E402

keep_memory()  # as the command does, before torch has threads

import torch  # noqa: E402
from reader import RESULTS, origin  # noqa: E402

from pipelines.retrieval.options import default_tracking_uri  # noqa: E402
from pipelines.retrieval.search_model import SearchModel, load_search_model  # noqa: E402
from pipelines.serving import running  # noqa: E402
from pipelines.serving.deployment import replicas_on_ray  # noqa: E402
from preprocessing.features.images import read_image_bytes  # noqa: E402
from preprocessing.storage.atomic import write_json_atomic  # noqa: E402
from tests.pipelines.serving.bad_requests import FORM, JSON, form  # noqa: E402
from tests.ports import free_port  # noqa: E402

QUERIES = 64
K = 12
Query = tuple[str, bytes, dict[str, str]]


def figures(seconds: Sequence[float], elapsed: float) -> dict[str, float]:
    """Requests a second, and milliseconds that half of the requests and 99 of 100 take at most."""
    ordered = sorted(seconds)
    return {
        "requests": len(ordered),
        "requests_per_second": round(len(ordered) / elapsed, 1),
        "p50_ms": round(1e3 * statistics.median(ordered), 1),
        "p99_ms": round(1e3 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 1),
    }


def ask(connection: http.client.HTTPConnection, query: Query) -> None:
    path, body, headers = query
    connection.request("POST", path, body, headers)
    answer = connection.getresponse()
    content = answer.read()
    assert answer.status == 200, content


def client(port: int, queries: Sequence[Query], first: int, until: float) -> list[float]:
    """Ask one query after another; returns what each took."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    ask(connection, queries[first])  # the connection, and what is computed once
    taken = []
    for query in islice(cycle(queries), first, None):
        started = time.perf_counter()
        if started > until:
            return taken
        ask(connection, query)
        taken.append(time.perf_counter() - started)
    return taken


def clients(port: int, queries: Sequence[Query], count: int, seconds: float) -> dict[str, float]:
    """Measure `count` clients at once, for `seconds` seconds."""
    started = time.perf_counter()
    with ThreadPoolExecutor(count) as threads:
        each = len(queries) // count
        found = [threads.submit(client, port, queries, number * each, started + seconds) for number in range(count)]
        taken = [time for future in found for time in future.result()]
    return figures(taken, time.perf_counter() - started)


def alone(work: Callable[[str], object], queries: Sequence[str], seconds: float) -> dict[str, float]:
    """The bare work, query after query."""
    work(queries[0])
    started, taken = time.perf_counter(), []
    for query in cycle(queries):
        begun = time.perf_counter()
        if begun - started > seconds:
            return figures(taken, begun - started)
        work(query)
        taken.append(time.perf_counter() - begun)
    raise AssertionError("a cycle has no end")


def reference(model: SearchModel, texts: Sequence[str], uris: Sequence[str], seconds: float) -> dict[str, Any]:
    """Embedding and search in this process, with one thread as in a replica, over files that have been read before."""
    torch.set_num_threads(1)
    model.embed(uris, "image")
    return {
        "text": alone(lambda text: model.find(model.embed([text], "text"), "text", K, "images"), texts, seconds),
        "image": alone(lambda uri: model.find(model.embed([uri], "image"), "image", K, "captions"), uris, seconds),
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    model = load_search_model(options.model, options.tracking_uri)
    records = model.gallery.records[:: max(1, len(model.gallery.records) // QUERIES)][:QUERIES]
    texts, uris = [record.captions[0].text for record in records], [record.image_uri for record in records]
    bodies: dict[str, list[Query]] = {
        "text": [("/search", json.dumps({"text": text, "k": K}).encode(), JSON) for text in texts],
        "image": [(f"/search/image?k={K}", form(read_image_bytes(uri), "image/jpeg"), FORM) for uri in uris],
    }
    result: dict[str, Any] = {"model": model.name, "images": len(model.gallery.records), "k": K}
    result["reference"] = reference(model, texts, uris, options.seconds)
    name = model.name
    del model  # the replica has its own
    result["own process"] = asked(name, bodies, options)
    with patch.object(running, "_replicas", replicas_on_ray):  # one replica is in the command's process by itself
        result["Ray Serve"] = asked(name, bodies, options)
    return result


def asked(name: str, bodies: dict[str, list[Query]], options: argparse.Namespace) -> dict[str, Any]:
    """Measure a service from its start to its end."""
    port, spawn = free_port(), multiprocessing.get_context("spawn")
    with running.serving(name, options.tracking_uri, "127.0.0.1", port), ProcessPoolExecutor(1, spawn) as elsewhere:
        return {
            kind: {
                f"{count} clients": elsewhere.submit(clients, port, queries, count, options.seconds).result()
                for count in (1, 8, 50)
            }
            for kind, queries in bodies.items()
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="registered model, or the directory of a bundle")
    parser.add_argument("--tracking-uri", default=default_tracking_uri())
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement")
    parser.add_argument("--output", type=Path, default=RESULTS / "serving.json")
    options = parser.parse_args()
    result = {**origin(), **measure(options)}
    runs = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else []
    runs.append(result)
    write_json_atomic(options.output, runs)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

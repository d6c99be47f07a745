"""The search service under load: what is answered and refused, how fast, and whom slow or hostile clients hold up.

The service is the real one: the application, and one replica on Ray Serve. Clients are coroutines of another process,
each with a connection and an address of its own (127.1.0.N). A client that is refused asks its next query at once.

Run: python tests/benchmarks/serving_load.py --model flickr8k
A run is added to the others of its label ("after", or "before" in a checkout of an older version), to take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import shlex
import struct
import sys
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # after this folder, whose neighbours are imported by their own names

from reader import RESULTS, machine  # noqa: E402
from serving import QUERIES, K, Query, figures  # noqa: E402

from pipelines.retrieval.search_model import default_tracking_uri, load_search_model  # noqa: E402
from pipelines.serving.serve import serving  # noqa: E402
from preprocessing.features.images import read_image_bytes  # noqa: E402
from preprocessing.storage.atomic import write_json_atomic  # noqa: E402
from tests.pipelines.serving.bad_requests import FORM, JSON, form  # noqa: E402
from tests.ports import free_port  # noqa: E402

SLOW_SECONDS = 25.0
Outcome = tuple[int, float]


class Client:
    """A client with an address and a connection of its own."""

    def __init__(self, port: int, number: int) -> None:
        connector = aiohttp.TCPConnector(limit=1, local_addr=(f"127.1.0.{number + 1}", 0))
        timeout = aiohttp.ClientTimeout(total=60)
        self._session = aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector, timeout=timeout)
        self.outcomes: list[Outcome] = []

    async def ask(self, query: Query) -> int:
        path, body, headers = query
        started = time.perf_counter()
        async with self._session.post(path, data=body, headers=headers) as answer:
            await answer.read()
        self.outcomes.append((answer.status, time.perf_counter() - started))
        return answer.status

    async def close(self) -> None:
        await self._session.close()


def summary(clients: Sequence[Client], elapsed: float) -> dict[str, Any]:
    outcomes = [outcome for client in clients for outcome in client.outcomes]
    answered = [seconds for status, seconds in outcomes if status == 200]
    refused = Counter(str(status) for status, _ in outcomes if status != 200)
    return {"refused": sum(refused.values()), "refusals": dict(refused), **figures(answered or [0.0], elapsed)}


async def closed_loop(port: int, queries: Sequence[Query], count: int, seconds: float) -> dict[str, Any]:
    """`count` clients, each of which asks one query after another, for some seconds."""
    clients = [Client(port, number) for number in range(count)]
    started = time.perf_counter()

    async def work(number: int) -> None:
        turn = number * 7
        while time.perf_counter() - started < seconds:
            await clients[number].ask(queries[turn % len(queries)])
            turn += 1

    await asyncio.gather(*(work(number) for number in range(count)))
    found = summary(clients, time.perf_counter() - started)
    await asyncio.gather(*(client.close() for client in clients))
    return found


async def slow_client(port: int, number: int) -> float | None:
    """Half a head (even numbers), or an upload of a byte in half a second; seconds until the server hangs up."""
    address = (f"127.1.1.{number + 1}", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=address)
    head = b"POST /search/image HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    if number % 2:
        head += b"Content-Type: multipart/form-data; boundary=a\r\nContent-Length: 1000000\r\n\r\n--a"
    writer.write(head)
    started = time.perf_counter()
    try:
        while time.perf_counter() - started < SLOW_SECONDS:
            if number % 2:
                writer.write(b"\0")
            try:
                async with asyncio.timeout(0.5):
                    if not await reader.read(4096) or number % 2:
                        return round(time.perf_counter() - started, 1)
            except TimeoutError:
                continue
        return None
    except ConnectionError:
        return round(time.perf_counter() - started, 1)
    finally:
        writer.close()


async def burst(port: int, texts: Sequence[Query], images: Sequence[Query], slow: int) -> dict[str, Any]:
    """500 requests, one in 25 with an image, by 50 clients, with slow clients next to them."""
    late = [asyncio.create_task(slow_client(port, number)) for number in range(slow)]
    await asyncio.sleep(1.0)  # until all of them are connected and hold what they can
    clients = [Client(port, number) for number in range(50)]

    async def work(number: int) -> None:
        for turn in range(10):
            place = number + 7 * turn
            await clients[number].ask((images if place % 25 == 0 else texts)[place % len(texts)])

    started = time.perf_counter()
    await asyncio.gather(*(work(number) for number in range(50)))
    found = summary(clients, time.perf_counter() - started)
    await asyncio.gather(*(client.close() for client in clients))
    hung_up = await asyncio.gather(*late)
    return {**found, "slow_clients": slow, "seconds_until_a_slow_client_is_refused": hung_up}


def chunk_bomb() -> bytes:
    """A PNG of 7.5 MB in 400,000 text chunks."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(64 * 193)))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"tEXt", b"Title\0a") * 394_000 + pixels + chunk(b"IEND", b"")


async def bomb(port: int, texts: Sequence[Query]) -> dict[str, Any]:
    """One client searches with texts while another uploads a PNG of text chunks."""
    client, hostile = Client(port, 0), Client(port, 1)
    attack = asyncio.create_task(hostile.ask((f"/search/image?k={K}", form(chunk_bomb()), FORM)))
    turn = 0
    while not attack.done():
        await client.ask(texts[turn % len(texts)])
        turn += 1
    (status, seconds), took = hostile.outcomes[0], [seconds for _, seconds in client.outcomes]
    await asyncio.gather(client.close(), hostile.close())
    return {"status": status, "seconds": round(seconds, 2), "longest_search_meanwhile_ms": round(1e3 * max(took), 1)}


async def attack(port: int, texts: Sequence[Query], images: Sequence[Query], seconds: float) -> dict[str, Any]:
    await closed_loop(port, texts, 4, 1.0)  # what is imported and computed once
    result: dict[str, Any] = {
        "text": {f"{count} clients": await closed_loop(port, texts, count, seconds) for count in (1, 8, 50, 200)},
        "image": {f"{count} clients": await closed_loop(port, images, count, seconds) for count in (1, 8, 50)},
    }
    result["burst"] = await burst(port, texts, images, 20)
    result["chunk_bomb"] = await bomb(port, texts)
    return result


def run_attack(port: int, texts: Sequence[Query], images: Sequence[Query], seconds: float) -> dict[str, Any]:
    return asyncio.run(attack(port, texts, images, seconds))


def hold(port: int) -> None:
    """Twenty slow clients and eight that search, until the service has gone."""

    async def searching(number: int) -> None:
        query = ("/search", json.dumps({"text": "a dog", "k": K}).encode(), JSON)
        client = Client(port, number)
        try:
            while True:
                await client.ask(query)
        except aiohttp.ClientError:
            await client.close()

    async def both() -> None:
        await asyncio.gather(*(slow_client(port, number) for number in range(20)), *map(searching, range(8)))

    asyncio.run(both())


def measure(options: argparse.Namespace) -> dict[str, Any]:
    model = load_search_model(options.model, options.tracking_uri)
    records = model.gallery.records[:: max(1, len(model.gallery.records) // QUERIES)][:QUERIES]
    texts: list[Query] = [
        ("/search", json.dumps({"text": record.captions[0].text, "k": K}).encode(), JSON) for record in records
    ]
    images: list[Query] = [
        (f"/search/image?k={K}", form(read_image_bytes(record.image_uri), "image/jpeg"), FORM) for record in records
    ]
    name = model.name
    del model  # the replica has its own
    port = free_port()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn) as elsewhere:
        with serving(name, options.tracking_uri, "127.0.0.1", port):
            found = elsewhere.submit(run_attack, port, texts, images, options.seconds).result()
            elsewhere.submit(hold, port)
            time.sleep(3)
            stopped = time.perf_counter()
        found["seconds_to_stop_under_load"] = round(time.perf_counter() - stopped, 1)
    return {"model": name, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="registered model, or the directory of a bundle")
    parser.add_argument("--tracking-uri", default=default_tracking_uri())
    parser.add_argument("--seconds", type=float, default=10.0, help="of each number of clients")
    parser.add_argument("--output", type=Path, default=RESULTS / "serving_load.json")
    parser.add_argument("--label", default="after", choices=("before", "after"), help="the version that is measured")
    options = parser.parse_args()
    result = {"command": shlex.join(["python", *sys.argv]), "machine": machine(), **measure(options)}
    runs = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {}
    runs.setdefault(options.label, []).append(result)
    write_json_atomic(options.output, runs)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

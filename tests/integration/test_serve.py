"""A real service, in one process and on Ray Serve: it finds, it refuses, and no flood ends it."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import ray

from pipelines.runtime.stage import StageError
from pipelines.serving import running
from pipelines.serving.rollout import Scale
from tests.pipelines.serving.bad_requests import BAD_REQUESTS, FORM, encoded, form
from tests.pipelines.tiny_bundle import write_tiny_bundle
from tests.ports import free_port


def ask(port: int, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        # What is too long is refused before it has all been sent.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, path, body or None, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    finally:
        connection.close()


def search(port: int) -> tuple[int, str]:
    return ask(port, "POST", "/search", b'{"text": "a red ring", "k": 2}', {"Content-Type": "application/json"})


def resident_megabytes(process: str) -> float:
    """Memory of the actors whose title begins like this, together."""
    found = 0.0
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and (folder / "cmdline").read_bytes().startswith(process.encode()):
                found += int((folder / "statm").read_text().split()[1]) * 4096 / 1e6
        except OSError:  # it has ended
            continue
    return found


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_bundle(tmp_path_factory.mktemp("serve") / "bundle")


@pytest.fixture(scope="module")
def port(ray_cluster: str, bundle: Path) -> Iterator[int]:
    port = free_port()
    with running.serving(str(bundle), "unused", "127.0.0.1", port, scale=Scale(2)):
        yield port


def test_a_service_in_one_process_finds_and_refuses(bundle: Path) -> None:
    with running.serving(str(bundle), "unused", "127.0.0.1", own := free_port()):
        test_a_service_on_ray_finds_and_refuses(own)


def test_a_service_on_ray_finds_and_refuses(port: int) -> None:
    status, body = search(port)
    assert status == 200
    assert len(json.loads(body)["results"]) == 2
    assert ask(port, "GET", json.loads(body)["results"][0]["image_url"])[0] == 200
    # http.client does not send these at all or fixes them, and unknown methods end in the server's own parser.
    unsendable = ("length is", "a length of", "host ''", "image '\u00e9'", "BREW")
    for case in BAD_REQUESTS:
        if case.name.startswith(unsendable):
            continue
        status, body = ask(port, case.method, case.path, case.body, dict(case.headers))
        assert status == case.status, (case.name, body)
        assert case.method == "HEAD" or case.message in json.loads(body)["error"], case.name
    assert search(port)[0] == 200


def test_a_flood_on_ray_is_bounded_in_number_time_and_memory(port: int) -> None:
    """Five seconds of searches, uploads and bodies that are no JSON by 24 clients at once."""

    def flood(client: int) -> list[int]:
        statuses = []
        while time.monotonic() < end:
            if client % 3 == 0:
                statuses.append(search(port)[0])
            elif client % 3 == 1:
                body = form(encoded("JPEG") + bytes(4_000_000), "image/jpeg")
                statuses.append(ask(port, "POST", "/search/image", body, FORM)[0])
            else:
                statuses.append(ask(port, "POST", "/search", b"{" * 9000, {"Content-Type": "application/json"})[0])
        return statuses

    replica = "ray::ServeReplica:vse-search:search"
    search(port)
    before = resident_megabytes(replica)
    assert before > 10
    end = time.monotonic() + 5
    with ThreadPoolExecutor(24) as threads:
        statuses = Counter(status for found in threads.map(flood, range(24)) for status in found)
    assert set(statuses) <= {200, 400, 503}
    assert statuses[200]
    time.sleep(1)
    assert search(port)[0] == 200
    # Eight uploads wait and of each replica are decoded at a time, which takes 130 to 250 MB; all are gigabytes.
    assert resident_megabytes(replica) - before < 1000


@pytest.mark.nightly  # Ray collects metrics every ten seconds
def test_requests_are_counted_by_their_status(port: int) -> None:
    (node,) = ray.nodes()
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"

    def counted() -> dict[str, float]:
        with urllib.request.urlopen(address, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        found = [line for line in lines if line.startswith("ray_vse_search_requests_total{")]
        return {line.partition('status="')[2].partition('"')[0]: float(line.rpartition(" ")[2]) for line in found}

    for _ in range(30):
        assert ask(port, "GET", "/model", headers={"X": "a" * 66_000})[0] == 431
    end = time.monotonic() + 60
    while counted().get("431", 0) < 30 and time.monotonic() < end:
        time.sleep(1)
    assert counted()["431"] == 30


def test_a_cluster_that_serves_already_is_refused(port: int) -> None:
    with (
        pytest.raises(StageError, match="Ray Serve runs on this cluster already"),
        running.serving("unused", "unused", "127.0.0.1", free_port(), scale=Scale(2)),
    ):
        pass
    assert search(port)[0] == 200

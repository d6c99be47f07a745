"""The metrics of the service, and its log of requests: a line each, with id, outcome and milliseconds."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from pipelines.serving import limits
from pipelines.serving.app import build_app
from pipelines.serving.guard import Guard
from pipelines.serving.replica import SearchReplica


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_requests_are_counted_and_timed(client: TestClient, replica: SearchReplica) -> None:
    names = [
        ("vse_search_requests_total", {"status": "200"}),
        ("vse_search_requests_total", {"status": "413"}),
        ("vse_search_refusals_total", {"status": "413"}),
        ("vse_search_seconds_count", {"path": "/search"}),
        ("vse_search_seconds_count", {"path": "/images/{image_id:path}"}),
        ("vse_search_seconds_count", {"path": ""}),
    ]
    before = [sample(name, **labels) for name, labels in names]
    for _ in range(3):
        assert client.post("/search", json={"text": "a red ring", "k": 1}).status_code == 200
    client.get("/images/nothing")
    client.get("/no-such-path")
    client.post("/search", content=bytes(limits.MAX_JSON_BYTES + 1))
    found = [sample(name, **labels) - was for (name, labels), was in zip(names, before, strict=True)]
    assert found == [3, 1, 1, 3, 1, 1]
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    (served,) = families["vse_search_served_info"].samples
    assert served.labels == {"model": replica._name, "gallery": "", "gallery_version": ""}
    assert {"vse_search_requests", "vse_search_seconds", "process_resident_memory_bytes"} <= families.keys()


def test_the_page_is_there_if_no_request_finds_room_and_no_replica_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_method: str, *_: Any) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(limits, "MAX_REQUESTS", 0)
    client = TestClient(Guard(build_app(hang), "a token of some length", None))
    headers = {"Authorization": "Bearer a token of some length"}
    assert client.get("/model", headers=headers).status_code == 429
    assert 'vse_search_refusals_total{status="429"}' in client.get("/metrics", headers=headers).text
    assert client.get("/metrics").status_code == 401


def test_a_request_is_a_line_of_the_log(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pipelines.serving")
    asked = client.post("/search", json={"text": "a red ring"}, headers={"X-Request-ID": "abc-1"})
    client.get("/model", headers={"Host": "example.com", "X-Request-ID": "not one\x7f"})
    assert asked.headers["x-request-id"] == "abc-1"
    first, second = (record.fields for record in caplog.records)  # type: ignore[attr-defined]
    assert 0 < first.pop("ms") < 60_000
    assert first == {"id": "abc-1", "method": "POST", "path": "/search", "status": 200, "outcome": "answered"}
    assert (second["status"], second["outcome"], len(second["id"])) == (400, "refused", 16)
    line = caplog.messages[0]
    assert line.startswith("abc-1 POST /search 200 answered ")
    assert "red ring" not in line


def test_an_error_of_our_own_has_the_id_of_its_request(caplog: pytest.LogCaptureFixture) -> None:
    async def break_down(*_: Any) -> None:
        raise ZeroDivisionError

    answer = TestClient(Guard(build_app(break_down), None, None)).get("/model", headers={"X-Request-ID": "abc-2"})
    assert (answer.status_code, "abc-2" in answer.json()["error"]) == (500, True)
    assert "GET /model failed (abc-2)" in caplog.text

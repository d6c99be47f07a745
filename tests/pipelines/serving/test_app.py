"""The application finds, shows, refuses what it cannot answer in one message, and keeps serving."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import datetime as dt
import io
import json
import logging
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from ray.exceptions import ActorDiedError
from ray.serve._private.common import DeploymentID
from ray.serve.exceptions import DeploymentUnavailableError
from starlette.testclient import TestClient

from pipelines.retrieval.search_model import SearchModel
from pipelines.serving.app import build_app
from pipelines.serving.deployment import asking
from pipelines.serving.guard import Guard
from pipelines.serving.replica import Answer, Search, SearchReplica
from pipelines.serving.request_error import RequestError
from preprocessing.features.images import load_image
from tests.pipelines.serving.bad_requests import BAD_REQUESTS, FORM, BadRequest, encoded, form
from tests.pipelines.serving.conftest import guarded
from tests.pipelines.tiny_bundle import IMAGES, write_tiny_bundle, write_tiny_unified_bundle


def test_a_text_finds_images_that_are_shown_by_their_ids(client: TestClient, search_model: SearchModel) -> None:
    answer = client.post("/search", json={"text": "a red ring", "k": 3})
    assert answer.status_code == 200
    body = answer.json()
    expected = search_model.answer("a red ring", "text", 3, "images").hits
    assert [result["id"] for result in body["results"]] == [hit.item_id for hit in expected]
    assert [result["similarity"] for result in body["results"]] == [round(hit.similarity, 4) for hit in expected]
    assert "scene://" not in answer.text
    assert body["model"] == client.get("/model").json()["model"] == "bundle"
    picture = client.get(body["results"][0]["image_url"])
    assert picture.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(picture.content)).size == load_image(expected[0].image_uri or "").size


def test_hits_say_how_sure_they_are_and_may_be_left_out(tmp_path: Path) -> None:
    replica = SearchReplica(str(write_tiny_bundle(tmp_path / "bundle", is_corrected=True)), "unused")
    expected, warning = replica._model.answer("a red ring", "text", IMAGES, "images")
    with TestClient(guarded(replica), base_url="http://127.0.0.1") as client:
        body = client.post("/search", json={"text": "a red ring"}).json()
        assert [result["confidence"] for result in body["results"]] == [
            round(hit.confidence or 2, 4) for hit in expected
        ]
        assert body["warning"] == warning
        least = sorted(hit.confidence or 2 for hit in expected)[2]
        sure = client.post("/search", json={"text": "a red ring", "min_confidence": least}).json()
        assert sure["results"] == body["results"][:4]


def test_a_condition_chooses_images_before_the_nearest_are_found(tmp_path: Path) -> None:
    replica = SearchReplica(str(write_tiny_bundle(tmp_path / "bundle")), "unused")
    ids = [record.image_id for record in replica._model.gallery.records]
    columns = pa.table({"image": ids, "year": list(range(IMAGES)), "taken": [dt.date(2024, 5, 31)] + [None] * 5})
    gallery = dataclasses.replace(replica._model.gallery, columns=columns)
    replica._model = dataclasses.replace(replica._model, gallery=gallery)
    with TestClient(guarded(replica), base_url="http://127.0.0.1") as client:
        everything = client.post("/search", json={"text": "a red ring"}).json()["results"]
        chosen = client.post("/search", json={"text": "a red ring", "where": "year >= 4", "k": 2}).json()["results"]
        assert chosen == [result for result in everything if result["id"] in ids[4:]]
        assert {result["id"]: result["columns"] for result in everything} == {
            name: {"year": year} | ({} if year else {"taken": "2024-05-31"}) for year, name in enumerate(ids)
        }
        image = {"image": ("a.png", encoded("PNG"), "image/png")}
        asked = client.post("/search/image", params={"where": "year = 5", "target": "images"}, files=image)
        assert [result["id"] for result in asked.json()["results"]] == ids[5:]
        captions = client.post("/search", json={"text": "a red ring", "where": "year = 5", "target": "captions"}).json()
        own = {caption.caption_id for caption in gallery.records[5].captions}
        assert {result["id"] for result in captions["results"]} == own
        assert all(result["columns"] == {"year": 5} for result in captions["results"])
        refused = client.post("/search", json={"text": "a red ring", "where": "yaer >= 4"})
        assert refused.status_code == 422
        known = "the gallery has image (text), year (numbers), taken (dates)"
        assert f"no column 'yaer'; {known}" in refused.json()["error"]
        assert client.get("/model").json()["columns"] == {"image": "text", "year": "numbers", "taken": "dates"}
        assert client.post("/search", json={"text": "a red ring", "where": "y" * 1001}).status_code == 422


def test_a_model_without_a_bank_is_not_asked_for_sure_hits(client: TestClient) -> None:
    answer = client.post("/search", json={"text": "a red ring", "min_confidence": 0.5})
    assert answer.status_code == 422
    assert "hits have no confidence" in answer.json()["error"]
    assert client.post("/search", json={"text": "a red ring"}).json()["results"][0]["confidence"] is None


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF"])
def test_an_image_finds_captions_and_images(client: TestClient, search_model: SearchModel, kind: str) -> None:
    record = search_model.gallery.records[2]
    data = io.BytesIO()
    load_image(record.image_uri).save(data, kind)
    files = {"image": ("a", data.getvalue(), f"image/{kind.lower()}")}
    found = client.post("/search/image?k=4", files=files).json()
    assert (found["target"], len(found["results"])) == ("captions", 4)
    found = client.post("/search/image?k=2&target=images", files=files).json()
    assert len(found["results"]) == 2
    if kind == "PNG":  # the others lose something
        assert found["results"][0]["id"] == record.image_id


def test_an_image_in_base64_finds_what_its_file_finds(client: TestClient, search_model: SearchModel) -> None:
    data = io.BytesIO()
    load_image(search_model.gallery.records[2].image_uri).save(data, "PNG")
    found = client.post("/search/image?k=4", files={"image": ("a", data.getvalue(), "image/png")}).json()
    sent = base64.b64encode(data.getvalue()).decode()
    for image in (sent, f"data:image/png;base64,{sent}"):
        assert client.post("/search/base64", json={"image": image, "k": 4}).json() == found


def test_a_batch_is_answered_text_by_text(client: TestClient) -> None:
    texts = ["a red ring", "!" * 200, "a blue star"]
    answers = client.post("/search/batch", json={"texts": texts, "k": 2}).json()["answers"]
    alone = [client.post("/search", json={"text": text, "k": 2}).json() for text in texts]
    assert [answers[0], answers[2]] == [alone[0], alone[2]]
    assert answers[1] == {"error": "text: the text has more than the 128 tokens that the model reads; shorten it"}


def test_more_like_an_image_are_the_nearest_others(client: TestClient, search_model: SearchModel) -> None:
    images_BKD = search_model.gallery.images_BKD
    ids = [record.image_id for record in search_model.gallery.records]
    similarities_B = (images_BKD[2] @ images_BKD.flatten(0, 1).T)[0]
    nearest = [ids[place] for place in similarities_B.argsort(descending=True).tolist() if place != 2]
    found = client.post("/search/like", json={"image_id": ids[2], "k": 3}).json()
    assert [result["id"] for result in found["results"]] == nearest[:3]
    assert found["target"] == "images"


def test_an_image_is_shown_in_its_full_size_without_its_metadata(
    client: TestClient, search_model: SearchModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exif = Image.Exif()
    exif[0x010E] = "secret"
    Image.new("RGB", (900, 700), "orange").save(tmp_path / "large.jpg", exif=exif)
    records = search_model.gallery.records
    monkeypatch.setattr(type(records[0]), "image_uri", str(tmp_path / "large.jpg"))
    address = f"/images/{quote(records[0].image_id, safe='')}"
    full = client.get(f"{address}?full=true").content
    assert Image.open(io.BytesIO(full)).size == (900, 700)
    assert b"secret" not in full
    assert max(Image.open(io.BytesIO(client.get(address).content)).size) == 480


@pytest.mark.parametrize(
    "text",
    ["!!!", "\u72ac\u304c\u8d70\u308b", "\U0001f415 \u202e", "<script>alert(1)</script>", "a" * 1000, "two\nlines"],
)
def test_unusual_texts_are_texts(client: TestClient, text: str) -> None:
    answer = client.post("/search", json={"text": text, "k": 1})
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["results"]) == 1


def test_a_text_longer_than_the_model_reads_is_refused(client: TestClient) -> None:
    answer = client.post("/search", json={"text": "!" * 200, "k": 1})
    message = "text: the text has more than the 128 tokens that the model reads; shorten it"
    assert (answer.status_code, answer.json()) == (422, {"error": message})


def test_all_there_is_where_more_is_asked_for(client: TestClient) -> None:
    assert len(client.post("/search", json={"text": "a ring", "k": 100}).json()["results"]) == IMAGES


@pytest.mark.parametrize("case", BAD_REQUESTS, ids=lambda case: case.name)
def test_a_bad_request_is_refused_in_one_message(
    client: TestClient, case: BadRequest, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.request(case.method, case.path, content=case.body, headers=dict(case.headers))
    assert answer.status_code == case.status, answer.text
    if case.method != "HEAD":
        body = answer.json()
        assert list(body) == ["error"]
        assert case.message in body["error"]
        assert len(body["error"]) < 400
        assert not any(word in body["error"] for word in ("Traceback", "/tmp", "site-packages", "0x"))
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert client.get("/health").json() == {"status": "ok"}


def test_a_body_without_a_length_is_read_no_further_than_its_limit(client: TestClient) -> None:
    body = (bytes(65536) for _ in range(200))
    answer = client.post("/search/image", content=body, headers=FORM)
    assert (answer.status_code, answer.json()["error"][:19]) == (413, "the body is longer ")


def test_an_error_of_our_own_shows_no_trace(
    client: TestClient, replica: SearchReplica, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret /path")

    monkeypatch.setattr(replica, "_search_texts", broken)
    answer = client.post("/search", json={"text": "a ring"})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    number = answer.json()["error"].split()[-1]
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert number in record.getMessage()
    assert client.get("/health").status_code == 200


def test_searches_that_wait_are_embedded_together(replica: SearchReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen at most; a text that the model cannot read is refused alone."""
    texts = ["a red ring", "!" * 200, *["a blue star"] * 38]
    batches, search = [], replica._search_texts

    def counting(queries: Sequence[Search]) -> list[Answer]:
        batches.append(len(queries))
        return search(queries)

    async def all_at_once() -> list[Answer]:
        return await asyncio.gather(*(replica.search_text(text, 2, "images") for text in texts))

    monkeypatch.setattr(replica, "_search_texts", counting)
    first, refused, *others = asyncio.run(all_at_once())
    assert max(batches) == 16
    assert isinstance(refused, RequestError)
    assert refused.status == 422
    assert [first] == search([Search(texts[0], 2, "images")])
    assert [others[0]] == search([Search(texts[2], 2, "images")])
    assert all(other == others[0] for other in others)


def test_the_interface_describes_itself_and_needs_nothing_from_elsewhere(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    searches = {"/search", "/search/batch", "/search/image", "/search/base64", "/search/like", "/relevance"}
    assert set(schema["paths"]) == {*searches, "/health", "/metrics", "/model", "/images/{image_id}"}
    for path in searches - {"/search/image"}:
        body = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        (example,) = schema["components"]["schemas"][body.rpartition("/")[2]]["examples"]
        # The gallery has no such image, and nothing else is wrong.
        assert client.post(path, json=example).status_code == (404 if "image_id" in example else 200), path
    assert schema["paths"]["/search/image"]["post"]["requestBody"]["content"].keys() == {"multipart/form-data"}
    page = client.get("/docs")
    assert "'unsafe-inline'" in page.headers["content-security-policy"]
    for address in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert address.startswith("/")
        assert client.get(address).status_code == 200


@pytest.mark.parametrize("error", [ActorDiedError(), DeploymentUnavailableError(DeploymentID("search"))])
def test_without_a_replica_a_client_is_told_to_try_again(error: Exception) -> None:
    async def fail(_method: str) -> None:
        raise error

    handle = SimpleNamespace(ask=SimpleNamespace(remote=fail))
    with TestClient(Guard(build_app(asking(handle)), None, None)) as client:  # type: ignore[arg-type]
        answer = client.get("/health")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_another_replica_answers_if_one_ends() -> None:
    answers = iter([ActorDiedError(), {"status": "ok"}])

    async def end_once(_method: str) -> object:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    handle = SimpleNamespace(ask=SimpleNamespace(remote=end_once))
    with TestClient(Guard(build_app(asking(handle)), None, None)) as client:  # type: ignore[arg-type]
        assert client.get("/health").status_code == 200
    assert not list(answers)


def test_an_image_is_decoded_while_a_search_runs(
    client: TestClient, replica: SearchReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that lasts holds up the search with an image, not its decoding."""
    held, decoded, decode = threading.Event(), threading.Event(), replica._decode

    def seen(data: bytes, kind: str) -> object:
        image = decode(data, kind)
        decoded.set()
        return image

    answer = {"model": "a", "target": "images", "warning": "", "results": []}
    monkeypatch.setattr(replica, "_search_texts", lambda _: held.wait(20) and [answer])
    monkeypatch.setattr(replica, "_decode", seen)
    with ThreadPoolExecutor(2) as threads:
        text = threads.submit(client.post, "/search", json={"text": "a ring"})
        image = threads.submit(client.post, "/search/image", content=form(encoded("PNG")), headers=FORM)
        assert decoded.wait(10)
        assert client.get("/health").status_code == 200
        assert not text.done()
        held.set()
        assert (text.result().status_code, image.result().status_code) == (200, 200)


def test_the_page_needs_nothing_from_elsewhere(client: TestClient) -> None:
    for path, kind in (("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css")):
        answer = client.get(path)
        assert answer.headers["content-type"].startswith(kind)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "//" not in answer.text.replace("// ", "")
    assert client.head("/").status_code == 200


@pytest.fixture(scope="module")
def unified(tmp_path_factory: pytest.TempPathFactory) -> SearchReplica:
    return SearchReplica(str(write_tiny_unified_bundle(tmp_path_factory.mktemp("unified") / "bundle")), "unused")


def test_maps_of_the_words_of_a_text(unified: SearchReplica) -> None:
    record = unified._model.gallery.records[0]
    with TestClient(guarded(unified), base_url="http://127.0.0.1") as client:
        assert client.get("/model").json()["finds_regions"] is True
        query = {"text": record.captions[0].text, "image_id": record.image_id}
        maps = client.post("/relevance", json=query).json()
        assert (maps["rows"], maps["columns"]) == (6, 6)
        assert maps["phrases"]
        for phrase in maps["phrases"]:
            assert sum(phrase["cells"]) == pytest.approx(36, abs=0.1)
            assert all(word in record.captions[0].text for word in phrase["text"].split()[:1])
        nothing = client.post("/relevance", json={**query, "text": "xyzzy"})
        assert (nothing.status_code, nothing.json()["error"]) == (422, "text: names nothing that the model knows")


def test_an_image_that_cannot_be_read_is_refused_without_its_path(
    unified: SearchReplica, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An archive that was moved away was named with its folder."""
    model = unified._model
    record = dataclasses.replace(model.gallery.records[0], image_uri=f"{tmp_path}/gone.tar#a.jpg@512+9")
    gallery = dataclasses.replace(model.gallery, records=(record, *model.gallery.records[1:]))
    monkeypatch.setattr(unified, "_model", dataclasses.replace(model, gallery=gallery))
    with TestClient(guarded(unified), base_url="http://127.0.0.1") as client:
        answer = client.post("/relevance", json={"text": "a red ring", "image_id": record.image_id})
    assert (answer.status_code, answer.json()["error"]) == (404, "the image of this id cannot be read on this machine")


def test_regions_without_positions_have_no_maps(unified: SearchReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    """36 of them were shown as 6 x 6 cells."""
    model = unified._model
    record, extractor = model.gallery.records[0], model.embedder._extractor
    monkeypatch.setattr(
        type(extractor), "__call__", lambda self, items: [np.ones((36, 192), np.float16) for _ in items]
    )
    with TestClient(guarded(unified), base_url="http://127.0.0.1") as client:
        answer = client.post("/relevance", json={"text": record.captions[0].text, "image_id": record.image_id})
    assert answer.status_code == 409
    assert "where the 36 features of an image lie is not known" in answer.json()["error"]


def test_models_without_regions_have_no_maps(client: TestClient, search_model: SearchModel) -> None:
    query = {"text": "a ring", "image_id": search_model.gallery.records[0].image_id}
    answer = client.post("/relevance", json=query)
    assert answer.status_code == 409
    assert "does not embed regions" in answer.json()["error"]
    assert json.loads(client.get("/model").text)["finds_regions"] is False

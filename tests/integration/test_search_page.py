"""The search page in a real browser: a query is typed, images are shown, a map is laid over one of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn

from pipelines.retrieval.search_model import SearchModel, load_search_model
from pipelines.serving.app import build_app
from pipelines.serving.guard import Guard
from pipelines.serving.service import SearchService
from preprocessing.features import load_image
from tests.integration import browser
from tests.pipelines.serving.replicas import local_replicas
from tests.pipelines.tiny_bundle import IMAGES, write_tiny_unified_bundle

TOKEN = "a token of some length"
SHOWN = "[...document.querySelectorAll('#results img')].filter((image) => image.naturalWidth > 0).length"


@pytest.fixture(scope="module")
def page() -> Iterator[browser.Page]:
    with browser.running() as page:
        page.resize(1200, 900)
        yield page


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SearchModel:
    return load_search_model(str(write_tiny_unified_bundle(tmp_path_factory.mktemp("page") / "bundle")), "unused")


@contextmanager
def served(model: SearchModel, token: str | None = None) -> Iterator[str]:
    """The address of the application in a thread of this process."""
    app = Guard(build_app(local_replicas(SearchService(model))), token, ["127.0.0.1"])
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        threading.Event().wait(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


def test_a_typed_query_shows_images_and_where_its_words_are(page: browser.Page, model: SearchModel) -> None:
    text = model.gallery.records[0].captions[0].text
    with served(model) as address:
        page.open(address)
        page.wait_for(f"document.getElementById('model').textContent.includes('{IMAGES} images')")
        page.evaluate("document.getElementById('text').focus()")
        page.type(text)
        page.press_enter()
        page.wait_for(f"{SHOWN} === {IMAGES}")
        scores = page.evaluate("[...document.querySelectorAll('#results .score b')].map((score) => +score.textContent)")
        assert scores == sorted(scores, reverse=True)
        page.evaluate("document.querySelector('.phrases button').click()")
        page.wait_for("document.querySelector('.frame canvas')")
        phrases = page.evaluate("[...document.querySelectorAll('.phrases')][0].innerText")
        assert phrases.strip()
        # The map has colours: what is drawn is not one of them alone.
        colours = """(() => { const canvas = document.querySelector('.frame canvas');
            const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            return new Set(pixels).size; })()"""
        assert page.evaluate(colours) > 10
        assert page.problems == []


def test_an_image_finds_captions(page: browser.Page, model: SearchModel, tmp_path: Path) -> None:
    file = tmp_path / "query.png"
    load_image(model.gallery.records[1].image_uri).save(file)
    with served(model) as address:
        page.open(address)
        page.wait_for("document.getElementById('file').accept")
        page.choose_file("#file", file)
        page.wait_for("document.querySelectorAll('#results.captions li').length === 12")
        assert page.evaluate("document.getElementById('query-image').naturalWidth") > 0
        assert page.problems == []


def test_text_is_never_markup(page: browser.Page, model: SearchModel) -> None:
    with served(model) as address:
        page.open(address + "/#text=" + "%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D'owned'%22%3E")
        page.wait_for(f"{SHOWN} === {IMAGES}")
        assert page.evaluate("document.title") == "Search"
        page.open("about:blank")


def test_a_refusal_is_shown(page: browser.Page, model: SearchModel, tmp_path: Path) -> None:
    file = tmp_path / "query.png"
    file.write_bytes(b"no picture")
    with served(model) as address:
        page.open(address)
        page.wait_for("document.getElementById('file').accept")
        page.choose_file("#file", file)
        page.wait_for("document.querySelector('#status.error').textContent.startsWith('image: not an image')")
        page.problems.clear()


def test_the_page_asks_for_the_token(page: browser.Page, model: SearchModel) -> None:
    with served(model, TOKEN) as address:
        page.open(address)
        page.wait_for("!document.getElementById('token-form').hidden")
        page.evaluate(f"document.getElementById('token').value = '{TOKEN}'")
        page.evaluate("document.getElementById('token-form').requestSubmit()")
        page.wait_for("document.getElementById('model').textContent.includes('images')")
        page.evaluate("document.getElementById('text').value = 'a red ring'")
        page.evaluate("document.getElementById('search').requestSubmit()")
        page.wait_for(f"{SHOWN} === {IMAGES}")
        page.problems.clear()  # the first answer was 401

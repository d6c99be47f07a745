"""The search page in a real browser: a query is typed, images are shown, a map is laid over one of them."""

from __future__ import annotations

import dataclasses
import datetime
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
import uvicorn
from playwright.sync_api import Page, expect

from pipelines.serving.app import build_app
from pipelines.serving.guard import Guard
from pipelines.serving.replica import SearchReplica
from preprocessing.features.images import load_image
from tests.integration import browser
from tests.pipelines.tiny_bundle import IMAGES, write_tiny_unified_bundle

TOKEN = "a token of some length"


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser.running() as page:
        yield page


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> SearchReplica:
    return SearchReplica(str(write_tiny_unified_bundle(tmp_path_factory.mktemp("page") / "bundle")), "unused")


@contextmanager
def served(replica: SearchReplica, token: str | None = None) -> Iterator[str]:
    """The address of the application in a thread of this process."""
    app = Guard(build_app(replica.ask), token, ["127.0.0.1"])
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        threading.Event().wait(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


def require_shown(page: Page, count: int) -> None:
    """Wait until the page shows as many images as results, and all of them have loaded."""
    expect(page.locator("#results img")).to_have_count(count)
    for image in page.locator("#results img").all():
        # One whose address is not set yet is complete as well.
        page.wait_for_function("image => image.complete && image.naturalWidth > 0", arg=image.element_handle())


def test_a_typed_query_shows_images_and_where_its_words_are(page: Page, replica: SearchReplica) -> None:
    problems = browser.problems_of(page)
    with served(replica) as address:
        page.goto(address)
        expect(page.locator("#model")).to_contain_text(f"{IMAGES} images")
        page.fill("#text", replica._model.gallery.records[0].captions[0].text)
        page.press("#text", "Enter")
        require_shown(page, IMAGES)
        scores = page.locator("#results .score").evaluate_all("rows => rows.map(row => +row.dataset.similarity)")
        assert scores == sorted(scores, reverse=True)
        page.locator(".phrases button").first.click()
        assert page.locator(".phrases").first.inner_text().strip()
        # The map has colours: what is drawn is not one of them alone.
        colours = page.locator(".frame canvas").first.evaluate("""canvas => new Set(
            canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data).size""")
        assert colours > 10
        assert problems == []


def test_an_image_finds_captions(page: Page, replica: SearchReplica, tmp_path: Path) -> None:
    problems = browser.problems_of(page)
    file = tmp_path / "query.png"
    load_image(replica._model.gallery.records[1].image_uri).save(file)
    with served(replica) as address:
        page.goto(address)
        page.set_input_files("#file", file)
        expect(page.locator("#results.captions li")).to_have_count(12)
        assert page.locator("#query-image").evaluate("image => image.naturalWidth") > 0
        first = page.locator("#results li").first.inner_text()
        page.click("#more")
        expect(page.locator("#results.captions li")).to_have_count(24)
        assert page.locator("#results li").first.inner_text() == first
        assert problems == []


def test_going_back_searches_with_the_image_before(page: Page, replica: SearchReplica, tmp_path: Path) -> None:
    """Though both files have one name."""
    problems, widths = browser.problems_of(page), (100, 60)
    image = page.locator("#query-image")
    with served(replica) as address:
        page.goto(address)
        for place, width in enumerate(widths):
            file = tmp_path / str(place) / "query.png"
            file.parent.mkdir()
            load_image(replica._model.gallery.records[place].image_uri).resize((width, 50)).save(file)
            page.set_input_files("#file", file)
            expect(image).to_have_js_property("naturalWidth", width)
        expect(page.locator("#results.captions li")).to_have_count(12)
        page.go_back()
        expect(image).to_have_js_property("naturalWidth", widths[0])
        expect(page.locator("#results.captions li")).to_have_count(12)
        assert problems == []


def test_an_image_is_opened_and_leads_to_others_by_the_keyboard(page: Page, replica: SearchReplica) -> None:
    """What was searched for is in the address: going back shows it again."""
    problems = browser.problems_of(page)
    with served(replica) as address:
        page.goto(address)
        expect(page.locator("#model")).to_contain_text("images")
        page.locator("#text").blur()
        page.keyboard.press("/")
        page.keyboard.type("a red ring")
        page.keyboard.press("Enter")
        require_shown(page, IMAGES)
        names = page.locator("#results .frame").evaluate_all("frames => frames.map(frame => frame.title)")
        page.locator("#results .frame").first.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        expect(page.locator("#viewer")).to_be_visible()
        expect(page.locator("#original")).to_have_js_property("naturalWidth", 128)
        expect(page.locator("#about")).to_contain_text(names[1])
        page.keyboard.press("ArrowRight")
        expect(page.locator("#about")).to_contain_text(names[2])
        page.click("#like")
        require_shown(page, IMAGES - 1)
        expect(page.locator("#text")).to_have_value("")
        assert page.locator("#results .frame").first.get_attribute("title") != names[2]
        page.go_back()
        require_shown(page, IMAGES)
        expect(page.locator("#text")).to_have_value("a red ring")
        assert problems == []


def test_a_value_of_a_hit_leaves_images_that_have_it_on_a_phone_too(page: Page, replica: SearchReplica) -> None:
    gallery = replica._model.gallery
    columns = pa.table(
        {"image": [record.image_id for record in gallery.records], "by": ["it's me", "you"] * (IMAGES // 2)}
    )
    model = dataclasses.replace(replica._model, gallery=dataclasses.replace(gallery, columns=columns))
    with pytest.MonkeyPatch.context() as patch, served(replica) as address:
        patch.setattr(replica, "_model", model)
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(f"{address}/#text=a+ring")
        require_shown(page, IMAGES)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        page.locator("#results button", has_text="by: it's me").first.click()
        require_shown(page, IMAGES // 2)
        expect(page.locator("#where")).to_have_value("by = 'it''s me'")
        assert "where=by" in page.url
        page.goto(f"{address}/#text=a+ring&where=by+%3D+'you'+or+by+is+null")
        require_shown(page, IMAGES // 2)
        page.locator("#results button", has_text="by: you").first.click()
        expect(page.locator("#where")).to_have_value("(by = 'you' or by is null) and by = 'you'")
        require_shown(page, IMAGES // 2)
        page.set_viewport_size({"width": 1280, "height": 720})


def test_a_value_that_a_click_cannot_find_is_not_offered(page: Page, replica: SearchReplica) -> None:
    """A null in a list stopped the script, and JavaScript rounds a long number to one that no image has."""
    gallery = replica._model.gallery
    at = datetime.datetime(2024, 5, 31, 12, 0, 0, 5_000)
    columns = pa.table(
        {
            "image": [record.image_id for record in gallery.records],
            "tags": [["sea", None]] + [["dog"]] * (IMAGES - 1),
            "number": [2**53 + 1] + [3] * (IMAGES - 1),
            "at": pa.array([at] + [None] * (IMAGES - 1), pa.timestamp("ms")),
        }
    )
    model = dataclasses.replace(replica._model, gallery=dataclasses.replace(gallery, columns=columns))
    problems = browser.problems_of(page)
    with pytest.MonkeyPatch.context() as patch, served(replica) as address:
        patch.setattr(replica, "_model", model)
        page.goto(f"{address}/#text=a+ring")
        require_shown(page, IMAGES)
        expect(page.locator("#results button", has_text="tags: null")).to_have_count(0)
        expect(page.locator("#results button", has_text="number: 90071")).to_be_disabled()
        page.locator("#results button", has_text="number: 3").first.click()
        require_shown(page, IMAGES - 1)
        for value in ("tags: sea", "at: 2024-05-31 12:00:00.005"):
            page.goto(f"{address}/#text=a+ring")
            require_shown(page, IMAGES)
            page.locator("#results button", has_text=value).click()
            require_shown(page, 1)
        assert problems == []


def test_text_is_never_markup(page: Page, replica: SearchReplica) -> None:
    with served(replica) as address:
        page.goto(address + "/#text=" + "%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D'owned'%22%3E")
        require_shown(page, IMAGES)
        assert page.title() == "Search"
        page.goto("about:blank")


def test_a_refusal_is_shown(page: Page, replica: SearchReplica, tmp_path: Path) -> None:
    file = tmp_path / "query.png"
    file.write_bytes(b"no picture")
    with served(replica) as address:
        page.goto(address)
        page.set_input_files("#file", file)
        expect(page.locator("#status.error")).to_contain_text("image: not an image")


def test_the_page_asks_for_the_token(page: Page, replica: SearchReplica) -> None:
    with served(replica, TOKEN) as address:
        page.goto(address)
        page.fill("#token", TOKEN)
        page.press("#token", "Enter")
        expect(page.locator("#model")).to_contain_text("images")
        page.fill("#text", "a red ring")
        page.press("#text", "Enter")
        require_shown(page, IMAGES)

"""The building blocks of a page: what is text stays text, and what is drawn lies inside."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from pipelines.reporting.page import Html, Section, details, page, paragraph, picture, plot, table
from tests.pipelines.reporting.finished_run import EVIL


class Tags(HTMLParser):
    """Collects the tags of a page, and complains of one that is never closed."""

    VOID = frozenset(("meta", "img", "br"))

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags(content: str) -> Tags:
    parser = Tags()
    parser.feed(content)
    parser.close()
    return parser


def embedded(content: str) -> Image.Image:
    (kind, data) = re.findall(r'src="data:image/(\w+);base64,([^"]+)"', content)[0]
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert image.format is not None
    assert image.format.lower() == kind
    return image


def test_texts_are_escaped_wherever_they_stand() -> None:
    blocks = [
        paragraph(EVIL),
        details(EVIL, EVIL),
        table([EVIL], [[EVIL]], [EVIL]),
        picture(picture_bytes(3, 2), EVIL),
    ]
    for content in (*blocks, page(EVIL, EVIL, [Section(EVIL, Html(""))])):
        assert "script" not in [tag for tag, _ in tags(content).seen]
        assert not [attributes for _, attributes in tags(content).seen if "onerror" in attributes]
    assert "&lt;script&gt;" in paragraph(EVIL)


def test_html_is_not_escaped_twice() -> None:
    assert paragraph(paragraph("a & b")) == "<p><p>a &amp; b</p></p>"


def picture_bytes(width: int, height: int) -> bytes:
    data = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)
    Image.fromarray(noise).save(data, "PNG")
    return data.getvalue()


def test_small_pictures_stay_as_they_are_and_large_ones_become_smaller() -> None:
    assert embedded(picture(picture_bytes(30, 20), "x")).size == (30, 20)
    large = picture_bytes(2000, 500)
    content = picture(large, "x")
    assert embedded(content).size == (1600, 400)
    assert len(content) < len(large)


def test_a_plot_is_inside_the_page_with_its_description() -> None:
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, 1])
    content = plot(figure, "a rising line")
    assert embedded(content).format == "PNG"
    assert 'alt="a rising line"' in content
    assert "<figcaption>a rising line</figcaption>" in content


def test_numbers_stand_to_the_right() -> None:
    cells = {"1,234": 1, "-0.5": 1, "0.1%": 1, "1e-05": 1, "12 images": 0, "2026-11-22": 0, "14fef40e": 0, "0.1.0": 0}
    content = table(list(cells), [list(cells)])
    assert [bool(kind) for kind in re.findall(r"<td( class=\"number\")?>", content)] == [
        bool(is_number) for is_number in cells.values()
    ]


def test_a_row_has_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError, match=r"row 1 of a table has 1 cells for 2 columns: \['x'\]"):
        table(["a", "b"], [["1", "2"], ["x"]])


def test_the_page_is_whole_and_reaches_for_nothing() -> None:
    content = page("A title", "lead", [Section("Data", paragraph("x")), Section("More data", paragraph("y"))])
    parsed = tags(content)
    assert not parsed.open
    links = [attributes["href"] for tag, attributes in parsed.seen if tag == "a"]
    anchors = [attributes["id"] for tag, attributes in parsed.seen if tag == "h2"]
    assert links == [f"#{anchor}" for anchor in anchors] == ["#data", "#more-data"]
    assert not {"script", "link", "iframe"} & {tag for tag, _ in parsed.seen}
    assert "default-src 'none'; img-src data:" in content
    assert "prefers-color-scheme: dark" in content

"""Templates: text stays text, numbers are aligned, and a page is complete."""

from __future__ import annotations

import re

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from pipelines.templates.render import render
from tests.pipelines.reporting.finished_run import EVIL
from tests.pipelines.templates.tags import render_block, tags


def page(title: str, state: str, **sections: str) -> str:
    return render(
        "report.html", title=title, state=state, stages=[(EVIL, "done", EVIL)], sections=sections, address=EVIL
    )


def test_texts_are_escaped_wherever_they_stand() -> None:
    blocks = [
        render_block("missing(text)", text=EVIL),
        render_block("table([text], [[text]], [text])", text=EVIL),
    ]
    for content in (*blocks, page(EVIL, EVIL, data=EVIL)):
        assert "script" not in [tag for tag, _ in tags(content).seen]
        assert not [attributes for _, attributes in tags(content).seen if "onerror" in attributes]
        assert "&lt;script&gt;" in content


def test_markup_is_not_escaped_twice() -> None:
    assert "<p>a &amp; b</p>" in page("A title", "done", data=Markup("<p>a &amp; b</p>"))


def test_a_value_that_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'rows' is undefined"):
        render("sheet.html", title="A title")


def test_numbers_stand_to_the_right() -> None:
    cells = {"1,234": 1, "-0.5": 1, "0.1%": 1, "1e-05": 1, "12 images": 0, "2026-11-22": 0, "14fef40e": 0, "0.1.0": 0}
    content = render_block("table(cells, [cells])", cells=list(cells))
    assert [bool(kind) for kind in re.findall(r"<td( class=\"number\")?>", content)] == [
        bool(is_number) for is_number in cells.values()
    ]


def test_a_row_has_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError, match=r"a table's row has 1 cells for 2 columns: \['x'\]"):
        render_block("table(['a', 'b'], [['1', '2'], ['x']])")


def test_the_page_is_complete_and_reaches_for_nothing() -> None:
    content = page("A title", "done", data="x", results="y")
    parsed = tags(content)
    assert not parsed.open
    links = [attributes["href"] for tag, attributes in parsed.seen if tag == "a"]
    anchors = [attributes["id"] for tag, attributes in parsed.seen if tag == "h2"]
    assert links == [f"#{anchor}" for anchor in anchors] == ["#data", "#results"]
    assert not {"script", "link", "iframe"} & {tag for tag, _ in parsed.seen}
    assert "default-src 'none'; img-src data:" in content
    assert "prefers-color-scheme: dark" in content

"""The tags of an HTML page, for tests of what pages hold."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from pipelines.templates import render as templates


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


def render_block(call: str, **values: Any) -> str:
    """Render a call of one of the report's macros."""
    source = f'{{% import "report/blocks.html" as blocks %}}{{{{ blocks.{call} }}}}'
    return templates._TEMPLATES.from_string(source).render(values)

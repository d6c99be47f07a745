"""The building blocks of a self-contained HTML page: texts are escaped, pictures lie inside, nothing is fetched.

Every block takes plain strings and escapes them; what is `Html` already passes through.
"""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A picture above this size is a photograph, or holds some: as a JPEG it is a fraction of its size.
_PNG_BYTES = 200_000
_WIDEST = 1600
_NUMBER = re.compile(r"[+-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)?%?")


class Html(str):
    """Text that is HTML already."""


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        title: its heading; its anchor is made of it.
        body: what stands below.
    """

    title: str
    body: Html

    @property
    def anchor(self) -> str:
        """Its name in the address."""
        return re.sub(r"\W+", "-", self.title.lower())


def escaped(text: str) -> Html:
    """Escape a text, unless it is HTML already."""
    return text if isinstance(text, Html) else Html(html.escape(text))


def joined(*parts: str) -> Html:
    """Put parts one after another."""
    return Html("\n".join(escaped(part) for part in parts))


def paragraph(text: str) -> Html:
    """A paragraph."""
    return Html(f"<p>{escaped(text)}</p>")


def heading(text: str) -> Html:
    """A heading within a section."""
    return Html(f"<h3>{escaped(text)}</h3>")


def missing(text: str) -> Html:
    """Say what is not there, and why."""
    return Html(f'<p class="missing">Not there: {escaped(text)}</p>')


def details(summary: str, body: str) -> Html:
    """Something long that opens with a click."""
    return Html(f"<details><summary>{escaped(summary)}</summary>\n{escaped(body)}\n</details>")


def preformatted(text: str) -> Html:
    """A text as it is, such as YAML."""
    return Html(f"<pre>{escaped(text)}</pre>")


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], classes: Sequence[str] = ()) -> Html:
    """A table, whose numbers stand to the right.

    Args:
        headers: of the columns.
        rows: their cells.
        classes: of each row, for its style; none where it is empty.

    Raises:
        ValueError: a row has not a cell for each column.
    """
    lines = []
    for number, row in enumerate(rows):
        if len(row) != len(headers):
            raise ValueError(f"row {number} of a table has {len(row)} cells for {len(headers)} columns: {list(row)}")
        kind = f' class="{html.escape(classes[number])}"' if classes else ""
        lines.append(f"<tr{kind}>{''.join(_cell(cell) for cell in row)}</tr>")
    head = "".join(f'<th scope="col">{escaped(header)}</th>' for header in headers)
    body = "\n".join(lines)
    return Html(f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>')


def _cell(text: str) -> str:
    kind = ' class="number"' if _NUMBER.fullmatch(text) else ""
    return f"<td{kind}>{escaped(text)}</td>"


def plot(figure: Figure, description: str) -> Html:
    """A matplotlib figure.

    Args:
        figure: the figure.
        description: what it shows, which is also read out where it cannot be seen.
    """
    data = io.BytesIO()
    figure.savefig(data, format="png", bbox_inches="tight", dpi=110)
    return picture(data.getvalue(), description)


def picture(data: bytes, description: str) -> Html:
    """A picture from the bytes of its file, made smaller where it is large."""
    kind = "png"
    if len(data) > _PNG_BYTES:
        with Image.open(io.BytesIO(data)) as opened:
            image = opened.convert("RGB")
        image.thumbnail((_WIDEST, 8 * _WIDEST))
        smaller = io.BytesIO()
        image.save(smaller, "JPEG", quality=82)
        kind, data = "jpeg", smaller.getvalue()
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
    text = escaped(description)
    return Html(f'<figure><img src="{source}" alt="{text}"><figcaption>{text}</figcaption></figure>')


def page(title: str, lead: str, sections: Sequence[Section], style: str = "") -> str:
    """The whole page.

    Args:
        title: of the page.
        lead: what stands above the sections.
        sections: in their order.
        style: rules for what sections bring along, before the page's own.
    """
    name = escaped(title)
    links = " ".join(f'<a href="#{section.anchor}">{escaped(section.title)}</a>' for section in sections)
    parts = "\n".join(
        f'<h2 id="{section.anchor}">{escaped(section.title)}</h2>\n{section.body}' for section in sections
    )
    # No script and nothing from elsewhere, whatever a caption may hold.
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{name}</title>\n'
        f"<style>{style}{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{name}</h1>\n{escaped(lead)}\n"
        f"<nav>{links}</nav>\n{parts}\n</main>\n</body>\n</html>\n"
    )


_STYLE = """
:root { --ink: #1a1a1a; --muted: #555; --line: #d9d9d9; --ground: #fff; --card: #f5f6f7; --accent: #0072b2;
  --ours: #e8f3ec; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececec; --muted: #b4b4b4; --line: #444; --ground: #161719; --card: #222427; --accent: #6cb8e8;
    --ours: #1d3328; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 0; }
main { max-width: 1300px; margin: 0 auto; padding: 24px; }
h1 { font-size: 24px; margin: 0 0 8px; overflow-wrap: anywhere; }
h2 { font-size: 20px; margin: 40px 0 8px; padding-top: 12px; border-top: 2px solid var(--line); }
h3 { font-size: 16px; margin: 24px 0 4px; }
a { color: var(--accent); }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 16px 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 8px 0; font-size: 14px; }
th, td { text-align: left; vertical-align: top; padding: 4px 12px 4px 0; border-bottom: 1px solid var(--line); }
th { color: var(--muted); font-weight: 600; }
td { overflow-wrap: anywhere; max-width: 560px; }
td.number { text-align: right; font-variant-numeric: tabular-nums; overflow-wrap: normal; white-space: nowrap; }
tr.measured td { background: var(--ours); font-weight: 600; }
pre { background: var(--card); padding: 12px; overflow-x: auto; font-size: 13px; }
details { margin: 10px 0; }
summary { cursor: pointer; color: var(--accent); }
.missing { color: var(--muted); border-left: 4px solid var(--line); padding-left: 10px; }
figure { margin: 14px 0; }
figure img { display: block; width: auto; height: auto; max-width: 100%; background: #fff; padding: 6px;
  box-sizing: border-box; border: 1px solid var(--line); }
figcaption { color: var(--muted); font-size: 13px; margin-top: 4px; }
@media print { nav { display: none; } h2 { break-after: avoid; } figure { break-inside: avoid; } }
"""

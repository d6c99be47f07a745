"""The images of a report lie inside its page, small enough to be sent around."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from pipelines.reporting.images import ReportImage
from tests.pipelines.templates.tags import render_block


def embedded(content: str) -> Image.Image:
    (kind, data) = re.findall(r'src="data:image/(\w+);base64,([^"]+)"', content)[0]
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert image.format is not None
    assert image.format.lower() == kind
    return image


def png(width: int, height: int) -> bytes:
    data = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)
    Image.fromarray(noise).save(data, "PNG")
    return data.getvalue()


def figure_html(image: ReportImage) -> str:
    return render_block("figure(image)", image=image)


def html(content: bytes) -> str:
    return figure_html(ReportImage.from_png(content, "x"))


def test_small_images_stay_as_they_are_and_large_ones_become_smaller() -> None:
    assert embedded(html(png(30, 20))).size == (30, 20)
    large = png(2000, 500)
    content = html(large)
    assert embedded(content).size == (1600, 400)
    assert len(content) < len(large)


def test_a_plot_is_inside_the_page_with_its_description() -> None:
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, 1])
    content = figure_html(ReportImage.from_figure(figure, "a rising line"))
    assert embedded(content).format == "PNG"
    assert 'alt="a rising line"' in content
    assert "<figcaption>a rising line</figcaption>" in content

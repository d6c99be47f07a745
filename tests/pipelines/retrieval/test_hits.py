"""Contact sheets: marks on the relevant results, escaped texts, placeholders, and the choice of queries."""

import base64
import io
import re

import pytest
import torch
from PIL import Image

from pipelines.retrieval import hits
from pipelines.retrieval.gallery import Gallery
from pipelines.retrieval.hits import Hit, SheetRow, as_hits, contact_sheet, own_queries, own_query
from preprocessing.datasets import Caption, Record
from preprocessing.features.images import ImageError
from preprocessing.storage.base import StorageError


@pytest.fixture(autouse=True)
def _images(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(uri: str) -> Image.Image:
        if "missing" in uri:
            raise ImageError("no such file")
        if "forbidden" in uri:
            raise StorageError("access denied")
        return Image.new("RGB", (5000, 1) if "narrow" in uri else (40, 20), "blue")

    monkeypatch.setattr(hits, "load_image", load)


def gallery(images: int = 3) -> Gallery:
    """Captions 2i and 2i+1 belong to image i; the first of each is its image's vector, the second its neighbour's."""
    images_BKD = torch.eye(images).unsqueeze(1)
    order = [index for image in range(images) for index in (image, (image + 1) % images)]
    records = tuple(
        Record(f"i{i}", f"/pictures/{i}.jpg", "dev", tuple(Caption(f"i{i}#{j}", f"caption {i} {j}") for j in (0, 1)))
        for i in range(images)
    )
    return Gallery(images_BKD, torch.eye(images)[order], records)


def test_hits_are_judged_by_their_image() -> None:
    hits = as_hits(gallery(), "images", (0.9, 0.5), (1, 2), relevant_image=2)
    assert hits == [
        Hit(0.9, "i1", "/pictures/1.jpg", "caption 1 0", False),
        Hit(0.5, "i2", "/pictures/2.jpg", "caption 2 0", True),
    ]
    hits = as_hits(gallery(), "captions", (0.9, 0.5), (3, 4))
    assert hits == [Hit(0.9, "i1#1", None, "caption 1 1"), Hit(0.5, "i2#0", None, "caption 2 0")]


def test_a_query_of_the_gallery_ranks_all_of_its_items() -> None:
    """Caption i2#1 has the vector of image 0, and stands later than i0#0: it comes first among equals."""
    row = own_query(gallery(), "captions", 0, k=2)
    assert [(hit.item_id, hit.relevant) for hit in row.hits] == [("i2#1", False), ("i0#0", True)]
    assert (row.query_image_uri, row.note) == ("/pictures/0.jpg", "first relevant result at rank 2 of 6")


def test_queries_are_spread_over_the_split() -> None:
    rows = own_queries(gallery(9), "images", queries=3, k=2)
    assert [row.query_text for row in rows] == ["caption 1 0", "caption 4 0", "caption 7 0"]
    assert {row.note for row in rows} == {"first relevant result at rank 1 of 9"}
    rows = own_queries(gallery(9), "captions", queries=3, k=2)
    assert [row.query_image_uri for row in rows] == ["/pictures/1.jpg", "/pictures/4.jpg", "/pictures/7.jpg"]
    assert len(own_queries(gallery(2), "images", queries=6)) == 2


def test_an_image_that_cannot_be_read_is_named_and_one_of_one_row_is_shown() -> None:
    hits = Hit(0.5, "i0", "/a/missing1.jpg"), Hit(0.4, "i1", "/narrow.png"), Hit(0.3, "i2", "s3://a/forbidden.jpg")
    page = contact_sheet("Title", [SheetRow(hits, query_image_uri="/a/missing1.jpg")]).decode()
    assert page.count("cannot be read: forbidden.jpg") == 1
    assert page.count("cannot be read: missing1.jpg") == 2
    assert page.count("<img") == 1


def test_html_escapes_every_text() -> None:
    evil = "<script>alert('x')</script>&\""
    hits = (Hit(0.5, evil, f"/{evil}.jpg", evil, True), Hit(0.4, evil, None, evil, False))
    page = contact_sheet(evil, [SheetRow(hits, evil, f"/{evil}", evil)]).decode()
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 6


def test_html_is_self_contained_and_marks_in_words_too() -> None:
    hits = (Hit(0.5, "i0", "/0.jpg", None, True), Hit(0.4, "i1", "/missing.jpg", None, False), Hit(0.3, "i2", "/2.jpg"))
    page = contact_sheet("Title", [SheetRow(hits, "a query")]).decode()
    items = re.findall(r'<li class="(\w+)">(.*?)</li>', page, re.DOTALL)
    assert [state for state, _ in items] == ["relevant", "irrelevant", "unjudged"]
    assert "✓" in items[0][1]
    assert 'aria-label="relevant"' in items[0][1]
    assert "✗" in items[1][1]
    assert 'class="mark"' not in items[2][1]
    sources = re.findall(r'src="([^"]*)"', page)
    assert len(sources) == 2
    for source in sources:
        assert Image.open(io.BytesIO(base64.b64decode(source.removeprefix("data:image/jpeg;base64,")))).format == "JPEG"
    assert "http:" not in page
    assert "https:" not in page

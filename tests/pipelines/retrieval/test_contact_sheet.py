"""Contact sheets: marks on the relevant results, escaped texts, placeholders, and the choice of queries."""

import base64
import io
import re

import pytest
import torch
from PIL import Image, ImageColor

from pipelines.retrieval import contact_sheet
from pipelines.retrieval.contact_sheet import GREEN, contact_sheet_html, contact_sheet_png
from pipelines.retrieval.gallery import Gallery
from pipelines.retrieval.hits import Hit, caption_hits, image_hits
from pipelines.retrieval.sheet_rows import SheetRow, image_to_text_rows, text_to_image_rows
from preprocessing.datasets import Caption, Record
from preprocessing.features import ImageError


@pytest.fixture(autouse=True)
def _images(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(uri: str) -> Image.Image:
        if "missing" in uri:
            raise ImageError("no such file")
        return Image.new("RGB", (5000, 1) if "narrow" in uri else (40, 20), "blue")

    monkeypatch.setattr(contact_sheet, "load_image", load)


def gallery(images: int = 3) -> Gallery:
    """Captions 2i and 2i+1 belong to image i; the first of each is its image's vector, the second its neighbour's."""
    images_BKD = torch.eye(images).unsqueeze(1)
    order = [index for image in range(images) for index in (image, (image + 1) % images)]
    records = tuple(
        Record(f"i{i}", f"/pictures/{i}.jpg", "dev", tuple(Caption(f"i{i}#{j}", f"caption {i} {j}") for j in (0, 1)))
        for i in range(images)
    )
    return Gallery(images_BKD, torch.eye(images)[order], records)


def count(picture: Image.Image, colour: str) -> int:
    wanted = ImageColor.getrgb(colour)
    return sum(pixel == wanted for pixel in picture.get_flattened_data())


def test_image_hits_are_ranked_and_judged() -> None:
    hits = image_hits(gallery(), torch.tensor([[0.1, 0.9, 0.5]]), 2, relevant_image=2)
    assert [(hit.item_id, hit.relevant) for hit in hits] == [("i1", False), ("i2", True)]
    assert [hit.similarity for hit in hits] == pytest.approx([0.9, 0.5])
    assert hits[0].image_uri == "/pictures/1.jpg"


def test_caption_hits_are_judged_by_their_image() -> None:
    hits = caption_hits(gallery(), torch.tensor([[1.0, 0.5, 0.0]]), 4, relevant_image=0)
    # Caption i2#1 has the vector of image 0, and stands later than i0#0: it comes first among equals.
    assert [(hit.item_id, hit.relevant) for hit in hits] == [
        ("i2#1", False),
        ("i0#0", True),
        ("i1#0", False),
        ("i0#1", True),
    ]
    assert caption_hits(gallery(), torch.tensor([[1.0, 0.5, 0.0]]), 1)[0].relevant is None


def test_rows_take_queries_spread_over_the_split_and_tell_the_rank_of_the_first_relevant_result() -> None:
    rows = text_to_image_rows(gallery(9), queries=3, k=2)
    assert [row.query_text for row in rows] == ["caption 1 0", "caption 4 0", "caption 7 0"]
    assert {row.note for row in rows} == {"first relevant result at rank 1 of 9"}
    rows = image_to_text_rows(gallery(9), queries=3, k=2)
    assert [row.query_image_uri for row in rows] == ["/pictures/1.jpg", "/pictures/4.jpg", "/pictures/7.jpg"]
    assert len(text_to_image_rows(gallery(2), queries=6)) == 2


def test_an_image_that_cannot_be_read_is_named() -> None:
    def row(uri: str) -> list[SheetRow]:
        return [SheetRow((Hit(0.5, "i0", uri),), query_image_uri=uri)]

    page = contact_sheet_html("Title", row("/a/missing1.jpg"))
    assert page.count("cannot be read: missing1.jpg") == 2
    assert "<img" not in page
    one, other = (contact_sheet_png("Title", row(f"/a/missing{number}.jpg")) for number in (1, 2))
    assert one.tobytes() != other.tobytes()


def test_an_image_of_one_row_is_drawn() -> None:
    row = SheetRow((Hit(0.5, "a", "/narrow.png"),), query_image_uri="/narrow.png")
    assert count(contact_sheet_png("Sheet", [row]), "blue")
    assert "data:image/jpeg" in contact_sheet_html("Sheet", [row])


def test_png_draws_dollars_and_letters_that_the_font_lacks_without_a_word(recwarn: pytest.WarningsRecorder) -> None:
    contact_sheet_png("$x_1$ 犬", [SheetRow((Hit(0.5, "$^$", None, "$5 and $10 犬"),), query_text="$\\frac$")])
    assert not recwarn.list


def test_png_marks_the_relevant_results_only() -> None:
    def sheet(relevant: bool | None) -> Image.Image:
        hit = Hit(0.5, "i0", "/pictures/0.jpg", "caption", relevant)
        return contact_sheet_png("Title", [SheetRow((hit,), query_text="a query")])

    assert count(sheet(True), GREEN) > 1000
    assert count(sheet(False), GREEN) == 0
    assert count(sheet(None), GREEN) == 0
    assert sheet(False).tobytes() != sheet(None).tobytes()


def test_png_of_captions_grows_with_the_results() -> None:
    def height(count: int) -> int:
        hits = tuple(Hit(0.5, str(i), None, "word " * 60, i == 0) for i in range(count))
        return contact_sheet_png("Title", [SheetRow(hits, query_image_uri="/missing.jpg")]).height

    assert height(20) > height(10) > 200


def test_png_breaks_words_that_are_wider_than_a_line() -> None:
    hit = Hit(0.5, "x" * 500, None, "y" * 5000, None)
    assert contact_sheet_png("z" * 400, [SheetRow((hit,), query_text="q" * 300)]).width < 2000


def test_html_escapes_every_text() -> None:
    evil = "<script>alert('x')</script>&\""
    hits = (Hit(0.5, evil, f"/{evil}.jpg", evil, True), Hit(0.4, evil, None, evil, False))
    page = contact_sheet_html(evil, [SheetRow(hits, evil, f"/{evil}", evil)])
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 6


def test_html_is_self_contained_and_marks_in_words_too() -> None:
    hits = (Hit(0.5, "i0", "/0.jpg", None, True), Hit(0.4, "i1", "/missing.jpg", None, False), Hit(0.3, "i2", "/2.jpg"))
    page = contact_sheet_html("Title", [SheetRow(hits, "a query")])
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


def test_sheets_refuse_to_be_empty() -> None:
    with pytest.raises(ValueError, match="at least one query"):
        contact_sheet_png("Title", [])
    with pytest.raises(ValueError, match="at least one query"):
        contact_sheet_html("Title", [])

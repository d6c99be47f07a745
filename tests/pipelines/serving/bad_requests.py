"""Requests that a service has to refuse, each with its status and words that its message holds."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from PIL import Image

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "multipart/form-data; boundary=limit"}


@dataclass(frozen=True)
class BadRequest:
    """A request, and the answer that must refuse it."""

    name: str
    method: str
    path: str
    status: int
    message: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def encoded(kind: str, width: int = 40, height: int = 30, colour: str = "orange") -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(data, kind)
    return data.getvalue()


def form(data: bytes, kind: str = "image/png", name: str = "image") -> bytes:
    """A multipart body with one file, of type :data:`FORM`."""
    head = f'--limit\r\nContent-Disposition: form-data; name="{name}"; filename="a"\r\nContent-Type: {kind}\r\n\r\n'
    return head.encode() + data + b"\r\n--limit--\r\n"


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_bomb(width: int, height: int, rows: int) -> bytes:
    """A PNG that says it is huge: some kilobytes that inflate to `rows` rows."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(rows * (3 * width + 1)), 9)
    chunks = png_chunk(b"IHDR", header) + png_chunk(b"IDAT", pixels) + png_chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def text_bomb() -> bytes:
    """A PNG with a compressed comment of 16 MB."""
    plain = encoded("PNG")
    comment = png_chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(16_000_000), 9))
    return plain[:33] + comment + plain[33:]


def tiny_chunks(kind: str, count: int) -> bytes:
    """An image with comments of a byte, each of which Pillow reads in Python."""
    plain = encoded(kind)
    comment, place = {
        "PNG": (png_chunk(b"tEXt", b"Title\0a"), 33),
        "JPEG": (b"\xff\xfe\0\3a", 2),
        "GIF": (b"\x21\xfe\1a\0", plain.index(b"\x2c")),
    }[kind]
    return plain[:place] + comment * count + plain[place:]


def _json(name: str, content: object, status: int, message: str, path: str = "/search") -> BadRequest:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return BadRequest(name, "POST", path, status, message, body, JSON)


def _picture(name: str, body: bytes, status: int, message: str, kind: str = "image/png", query: str = "") -> BadRequest:
    return BadRequest(name, "POST", f"/search/image{query}", status, message, form(body, kind), FORM)


def _bodies() -> list[BadRequest]:
    text = {"text": "a red ring"}
    not_json = {
        "half an object": b'{"text": "a',
        "an open brace": b"{",
        "words": b"a red ring",
        "single quotes": b"{'text': 'a'}",
        "two documents": b'{"text": "a"} {"text": "b"}',
        "a comma too many": b'{"text": "a",}',
        "a comment": b'{"text": "a"} // b',
        "a raw newline in a string": b'{"text": "a\nb"}',
        "a NUL": b"\x00",
        "XML": b"<text>a</text>",
        "an HTML form": b"text=a+red+ring",
    }
    wrong_text = {
        "a number": 3,
        "null": None,
        "a list": ["a"],
        "an object": {"a": "b"},
        "true": True,
        "nothing": "",
        "blanks": "  \t ",
        "a NUL": "a\x00b",
        "a bell": "ring \x07",
        "an escape": "\x1b[2J",
        "a delete": "a\x7f",
        "half a surrogate pair": "\ud800",
        "1,001 letters": "a" * 1001,
        "16,000 blanks": " " * 16_000,
    }
    wrong_k = {
        "0": 0,
        "-1": -1,
        "101": 101,
        "a billion": 10**9,
        "100 digits": 10**100,
        "3.5": 3.5,
        "3.0": 3.0,
        "a string": "3",
        "true": True,
        "null": None,
        "a list": [3],
        "NaN": float("nan"),
        "infinity": float("inf"),
    }
    wrong_target = {"another word": "pictures", "nothing": "", "null": None, "a number": 1, "a list": ["images"]}
    return [
        *(_json(f"body is {name}", body, 400, "the body is no JSON") for name, body in not_json.items()),
        *(_json(f"text is {name}", {"text": value}, 422, "text: ") for name, value in wrong_text.items()),
        *(_json(f"k is {name}", {**text, "k": value}, 422, "k: ") for name, value in wrong_k.items()),
        *(
            _json(f"target is {name}", {**text, "target": value}, 422, "target: ")
            for name, value in wrong_target.items()
        ),
        _json("body is deep nesting", b"[" * 10_000, 400, "the body cannot be read"),
        _json("body is invalid UTF-8", b'{"text": "caf\xe9"}', 400, "the body cannot be read"),
        _json("a list for a body", [text], 422, "the body: "),
        _json("null for a body", None, 422, "the body: "),
        _json("a string for a body", "a red ring", 422, "the body: "),
        _json("no text", {}, 422, "text: "),
        _json("an unknown key", {**text, "kk": 3}, 422, "kk: "),
        _json("a key of 5,000 letters", {**text, "k" * 5000: 3}, 422, "kkk: "),
        _json("a path for a picture", {**text, "image": "/etc/passwd"}, 422, "image: "),
        _json("an empty body", b"", 400, "the body is empty"),
        _json("a body of 20 kB", {"text": "a " * 10_000}, 413, "longer than 16,384 bytes"),
        _json("a body of 5 MB", b" " * 5_000_000, 413, "longer than 16,384 bytes"),
    ]


def _headers() -> list[BadRequest]:
    body = b'{"text": "a red ring"}'
    kinds = [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/octet-stream",
        "application/jsonx",
        "application/xml",
        "image/svg+xml",
        "image/tiff",
        "image/*",
        "*/*",
        "",
        "; charset=utf-8",
    ]
    lengths = {"negative": "-5", "a word": "many", "a fraction": "1.5"}
    return [
        *(
            BadRequest(f"content type {kind!r}", "POST", "/search", 415, "Content-Type", body, {"Content-Type": kind})
            for kind in kinds
        ),
        *(
            BadRequest(f"encoding {kind}", "POST", "/search", 415, "Encoding", body, {**JSON, "Content-Encoding": kind})
            for kind in ("gzip", "br", "deflate", "identity, gzip")
        ),
        *(
            BadRequest(f"length is {name}", "POST", "/search", 400, "number", body, {**JSON, "Content-Length": length})
            for name, length in lengths.items()
        ),
        BadRequest(
            "a length of 50 digits", "POST", "/search", 413, "longer", body, {**JSON, "Content-Length": "9" * 50}
        ),
        *(
            BadRequest(f"host {host!r}", "GET", "/model", 400, "goes by the names", headers={"Host": host})
            for host in ("evil.example.com", "127.0.0.1.evil.example.com", "", "127.0.0.1:80:80", "0.0.0.0")
        ),
    ]


def _paths() -> list[BadRequest]:
    unknown = [
        "/nope",
        "/search/",
        "/Search",
        "/search/../model/../nope",
        "/static/page.js",
        "/page.js/",
        "/page/index.html",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/etc/passwd",
        "/page.js%00",
        "/redoc",
        "/openapi.yaml",
        "/health/live",
        "/models",
    ]
    no_images = [
        "nope",
        "..%2f..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/etc/passwd",
        "%2fetc%2fpasswd",
        "/etc/passwd",
        "..%5c..%5cwindows%5cwin.ini",
        "%00",
        "1000000000%00.jpg",
        "file:%2f%2f%2fetc%2fpasswd",
        "scene:%2f%2f0%2f1",
        "s3:%2f%2fbucket%2fkey",
        "http:%2f%2f169.254.169.254%2flatest",
        "%ff%fe",
        "\u00e9",
        "a" * 5000,
        "*",
        "{image_id}",
        "",
    ]
    methods = [
        *((method, "/search") for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW")),
        *(("POST", path) for path in ("/", "/page.js", "/model", "/health", "/images/nope")),
        ("DELETE", "/images/nope"),
        ("GET", "/relevance"),
    ]
    return [
        # Some clients shorten it first; then there is nothing at the path, else no such image.
        BadRequest("a path with dots", "GET", "/images/../../../../etc/passwd", 404, "there is no"),
        *(BadRequest(f"path {path}", "GET", path, 404, "nothing at this path") for path in unknown),
        *(
            BadRequest(f"image {name[:40]!r}", "GET", f"/images/{name}", 404, "no image of this id")
            for name in no_images
        ),
        *(BadRequest(f"{method} {path}", method, path, 405, "use ") for method, path in methods),
    ]


def _pictures() -> list[BadRequest]:
    png, jpeg, gif, webp = (encoded(kind) for kind in ("PNG", "JPEG", "GIF", "WEBP"))
    good = {"image/png": png, "image/jpeg": jpeg, "image/gif": gif, "image/webp": webp}
    queries = {
        "?k=0": "k: ",
        "?k=101": "k: ",
        "?k=many": "k: ",
        "?k=": "k: ",
        "?k=1&k=2": "twice",
        "?k=1.5": "k: ",
        "?target=faces": "target: ",
        "?target=": "target: ",
        "?text=a": "text: ",
        f"?{'x' * 4000}=1": "xxx: ",
    }
    boundless = {"Content-Type": "multipart/form-data"}
    text_part = b'--limit\r\nContent-Disposition: form-data; name="image"\r\n\r\nabc\r\n--limit--\r\n'
    forms = [
        ("without a boundary", 400, "the body cannot be read", form(png), boundless),
        ("with another boundary", 400, "the body", form(png), {"Content-Type": "multipart/form-data; boundary=other"}),
        ("of noise", 400, "the body", b"\0" * 1000, FORM),
        ("of nothing", 422, "image: ", b"--limit--\r\n", FORM),
        ("without an image", 422, "image: ", form(png, name="picture"), FORM),
        ("with a text for the image", 422, "image: ", text_part, FORM),
        ("of 2,000 parts", 400, "the body cannot be read", form(b"").removesuffix(b"--limit--\r\n") * 2000, FORM),
        ("with a long head", 400, "the body", b"--limit\r\n" + b"X-A: " + b"a" * 100_000, FORM),
    ]
    noise = {
        "text": b"no picture",
        "an SVG": b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
        "HTML": b"<html><script>alert(1)</script></html>",
        "a ZIP": b"PK\x03\x04" + bytes(100),
        "a pickle": b"\x80\x04\x95\x00",
        "a TIFF": encoded("TIFF"),
        "a BMP": encoded("BMP"),
        "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        "a signature alone": png[:8],
        "zeros": bytes(1000),
    }
    return [
        *(_picture(f"{name} as PNG", body, 422, "image: ") for name, body in noise.items()),
        *(_picture(f"half a {kind}", data[: len(data) // 2], 422, "image: ", kind) for kind, data in good.items()),
        *(_picture(f"{kind} of one byte", data[:1], 422, "image: ", kind) for kind, data in good.items()),
        *(_picture(f"empty {kind}", b"", 422, "image: ", kind) for kind in good),
        *(
            _picture(f"part of type {kind!r}", png, 415, "image: its Content-Type", kind)
            for kind in ("image/svg+xml", "image/tiff", "image/*", "*/*", "text/plain", "", "application/json")
        ),
        _picture("a PNG as JPEG", png, 415, "said to be image/jpeg, and is PNG", "image/jpeg"),
        _picture("a JPEG as PNG", jpeg, 415, "said to be image/png, and is JPEG"),
        _picture("a GIF as WebP", gif, 415, "said to be image/webp, and is GIF", "image/webp"),
        _picture("a PNG with a wrong checksum", png[:40] + b"!" + png[41:], 422, "image: "),
        _picture("a bomb of 400 megapixels", png_bomb(20_000, 20_000, 100), 422, "exceeds limit"),
        _picture("a bomb of 169 megapixels", png_bomb(13_000, 13_000, 100), 413, "more than 25,000,000"),
        _picture("a bomb of 30 megapixels", png_bomb(6000, 5000, 100), 413, "more than 25,000,000"),
        _picture("a bomb of 2^31 columns", png_bomb(2**31 - 1, 1, 0), 422, "image: "),
        _picture("a bomb in a comment", text_bomb(), 422, "image: "),
        *(
            _picture(
                f"a {kind} of tiny chunks", tiny_chunks(kind, 50_000), 422, "too many tiny", f"image/{kind.lower()}"
            )
            for kind in ("PNG", "JPEG", "GIF")
        ),
        _picture("one column of 5,000 pixels", encoded("PNG", 1, 5000), 422, "one side may be 10 times"),
        _picture("no pixels", png_bomb(0, 0, 1), 422, "image: "),
        _picture("11 MiB", jpeg + bytes(11 * 1024 * 1024), 413, "longer than 10,485,760 bytes", "image/jpeg"),
        *(_picture(f"query {query[:20]}", png, 422, message, query=query) for query, message in queries.items()),
        *(
            BadRequest(
                f"an image as {kind}", "POST", "/search/image", 415, "has to be multipart", png, {"Content-Type": kind}
            )
            for kind in ("image/png", "application/json", "application/x-www-form-urlencoded", "")
        ),
        *(
            BadRequest(f"a form {name}", "POST", "/search/image", status, message, body, headers)
            for name, status, message, body, headers in forms
        ),
    ]


def _relevance() -> list[BadRequest]:
    return [
        _json("maps without a text", {"image_id": "x"}, 422, "text: ", "/relevance"),
        _json("maps without an image", {"text": "a ring"}, 422, "image_id: ", "/relevance"),
        _json(
            "maps of a path", {"text": "a ring", "image_id": "/etc/passwd"}, 404, "no image of this id", "/relevance"
        ),
        _json("maps of a number", {"text": "a ring", "image_id": 3}, 422, "image_id: ", "/relevance"),
        _json("maps of a long id", {"text": "a ring", "image_id": "x" * 1001}, 422, "image_id: ", "/relevance"),
        BadRequest(
            "maps of a picture",
            "POST",
            "/relevance",
            415,
            "Content-Type",
            encoded("PNG"),
            {"Content-Type": "image/png"},
        ),
    ]


BAD_REQUESTS = [*_bodies(), *_headers(), *_paths(), *_pictures(), *_relevance()]

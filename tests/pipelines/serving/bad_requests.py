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
TEXT = {"text": "a red ring"}


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
    comment, position = {
        "PNG": (png_chunk(b"tEXt", b"Title\0a"), 33),
        "JPEG": (b"\xff\xfe\0\3a", 2),
        "GIF": (b"\x21\xfe\1a\0", plain.index(b"\x2c")),
    }[kind]
    return plain[:position] + comment * count + plain[position:]


def _json(name: str, content: object, status: int, message: str, path: str = "/search") -> BadRequest:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return BadRequest(name, "POST", path, status, message, body, JSON)


def _picture(name: str, body: bytes, status: int, message: str, kind: str = "image/png", query: str = "") -> BadRequest:
    return BadRequest(name, "POST", f"/search/image{query}", status, message, form(body, kind), FORM)


def _bodies() -> list[BadRequest]:
    not_json = (b'{"text": "a', b'{"text": "a"} {"text": "b"}', b'{"text": "a\nb"}', b"\x00", b"text=a+red+ring")
    texts = (3, None, ["a"], "", "  \t ", "a\x00b", "\x1b[2J", "\ud800", "a" * 1001, " " * 16_000)
    counts = (0, -1, 101, 10**100, 3.0, "3", True, None, float("nan"))
    not_images = (3, None, "", "!!!", "data:image/png,abc", "/etc/passwd", "aGVsbG8=")
    batches: tuple[list[object], ...] = ([], ["a"] * 65, ["a", ""], [3])
    return [
        *(_json(f"body {body[:20]!r}", body, 400, "the body is not JSON") for body in not_json),
        *(_json(f"text {str(text)[:9]!r}", {"text": text}, 422, "text: ") for text in texts),
        *(_json(f"k is {count!r:.9}", {**TEXT, "k": count}, 422, "k: ") for count in counts),
        *(_json(f"target is {name}", {**TEXT, "target": name}, 422, "target: ") for name in ("pictures", "", None)),
        _json("body is deep nesting", b"[" * 10_000, 400, "the body cannot be read"),
        _json("body is invalid UTF-8", b'{"text": "caf\xe9"}', 400, "the body cannot be read"),
        _json("a list for a body", [TEXT], 422, "the body: "),
        _json("no text", {}, 422, "text: "),
        _json("a key of 5,000 letters", {**TEXT, "k" * 5000: 3}, 422, "kkk: "),
        _json("a path for a picture", {**TEXT, "image": "/etc/passwd"}, 422, "image: "),
        _json("an empty body", b"", 400, "the body is empty"),
        _json("a body of 20 kB", {"text": "a " * 10_000}, 413, "longer than 16,384 bytes"),
        *(_json(f"base64 {each!r:.20}", {"image": each}, 422, "image: ", "/search/base64") for each in not_images),
        _json("base64 of 11 MiB", {"image": "A" * 11 * 1024**2}, 413, "longer than 10,485,760", "/search/base64"),
        *(_json(f"a batch of {len(each)}", {"texts": each}, 422, "texts", "/search/batch") for each in batches),
        _json("like a path", {"image_id": "/etc/passwd"}, 404, "no image of this id", "/search/like"),
        _json("like an image with captions", {"image_id": "x", "target": "captions"}, 422, "target: ", "/search/like"),
        _json("maps without a text", {"image_id": "x"}, 422, "text: ", "/relevance"),
        _json("maps of a path", {**TEXT, "image_id": "/etc/passwd"}, 404, "no image of this id", "/relevance"),
        _json("maps of a number", {**TEXT, "image_id": 3}, 422, "image_id: ", "/relevance"),
        _json("maps of a long id", {**TEXT, "image_id": "x" * 1001}, 422, "image_id: ", "/relevance"),
    ]


def _headers() -> list[BadRequest]:
    def search(name: str, status: int, message: str, headers: Mapping[str, str]) -> BadRequest:
        return BadRequest(name, "POST", "/search", status, message, json.dumps(TEXT).encode(), {**JSON, **headers})

    kinds = ("text/plain", "multipart/form-data; boundary=x", "application/jsonx", "*/*", "", "; charset=utf-8")
    lengths = {"-5": (400, "number"), "many": (400, "number"), "1.5": (400, "number"), "9" * 50: (413, "longer")}
    hosts = ("evil.example.com", "127.0.0.1.evil.example.com", "", "127.0.0.1:80:80", "0.0.0.0")
    return [
        *(search(f"content type {kind!r}", 415, "Content-Type", {"Content-Type": kind}) for kind in kinds),
        *(search(f"encoding {kind}", 415, "Encoding", {"Content-Encoding": kind}) for kind in ("gzip", "identity, br")),
        *(search(f"length is {length}", *refusal, {"Content-Length": length}) for length, refusal in lengths.items()),
        *(
            BadRequest(f"host {host!r}", "GET", "/model", 400, "goes by the names", headers={"Host": host})
            for host in hosts
        ),
    ]


def _paths() -> list[BadRequest]:
    unknown = ("/nope", "/search/", "/Search", "/page/index.html", "/%2e%2e/etc/passwd", "/page.js%00", "/redoc")
    no_images = (
        "nope",
        "..%2f..%2f..%2f..%2fetc%2fpasswd",
        "%2fetc%2fpasswd",
        "%00",
        "file:%2f%2f%2fetc%2fpasswd",
        "scene:%2f%2f0%2f1",
        "http:%2f%2f169.254.169.254%2flatest",
        "%ff%fe",
        "\u00e9",
        "a" * 5000,
        "",
    )
    methods = [(method, "/search") for method in ("GET", "PUT", "OPTIONS", "HEAD", "TRACE", "BREW")]
    methods += [("POST", "/"), ("POST", "/health"), ("DELETE", "/images/nope"), ("GET", "/relevance")]
    return [
        # Some clients shorten it first; then there is nothing at the path, else no such image.
        BadRequest("a path with dots", "GET", "/images/../../../../etc/passwd", 404, "no"),
        *(BadRequest(f"path {path}", "GET", path, 404, "nothing is at this path") for path in unknown),
        *(BadRequest(f"image {name[:40]!r}", "GET", f"/images/{name}", 404, "no image of this") for name in no_images),
        *(BadRequest(f"{method} {path}", method, path, 405, "use ") for method, path in methods),
    ]


def _images() -> list[BadRequest]:
    png, jpeg = encoded("PNG"), encoded("JPEG")
    noise = (b"no picture", b"<svg><script>alert(1)</script></svg>", b"PK\x03\x04", encoded("TIFF"), png[:8], b"")
    formats = ("PNG", "JPEG", "GIF", "WEBP")
    types = {kind: f"image/{kind.lower()}" for kind in formats}
    pictures = {kind: encoded(kind) for kind in formats}
    not_ours = ("image/svg+xml", "image/*", "text/plain", "")
    return [
        *(_picture(f"{body[:9]!r} as PNG", body, 422, "image: ") for body in noise),
        *(_picture(f"half a {kind}", pictures[kind][:40], 422, "image: ", types[kind]) for kind in formats),
        *(_picture(f"part of type {kind!r}", png, 415, "image: its Content-Type", kind) for kind in not_ours),
        _picture("a PNG as JPEG", png, 415, "said to be image/jpeg, and is PNG", "image/jpeg"),
        _picture("a PNG with a wrong checksum", png[:40] + b"!" + png[41:], 422, "image: "),
        _picture("a bomb of 400 megapixels", png_bomb(20_000, 20_000, 100), 422, "exceeds limit"),
        _picture("a bomb of 30 megapixels", png_bomb(6000, 5000, 100), 413, "more than 25,000,000"),
        _picture("a bomb of 2^31 columns", png_bomb(2**31 - 1, 1, 0), 422, "image: "),
        _picture("a bomb in a comment", text_bomb(), 422, "image: "),
        *(
            _picture(f"a {kind} of tiny chunks", tiny_chunks(kind, 50_000), 422, "too many tiny", types[kind])
            for kind in formats[:3]
        ),
        _picture("one column of 5,000 pixels", encoded("PNG", 1, 5000), 422, "one side may be 10 times"),
        _picture("no pixels", png_bomb(0, 0, 1), 422, "image: "),
        _picture("11 MiB", jpeg + bytes(11 * 1024 * 1024), 413, "longer than 10,485,760 bytes", "image/jpeg"),
    ]


def _forms() -> list[BadRequest]:
    png = encoded("PNG")
    queries = {"k=0": "k: ", "k=many": "k: ", "k=1&k=2": "twice", "target=faces": "target: ", "text=a": "text: "}
    text_part = b'--limit\r\nContent-Disposition: form-data; name="image"\r\n\r\nabc\r\n--limit--\r\n'
    bodies = {
        "of noise": (400, "the body", b"\0" * 1000, FORM),
        "without a boundary": (400, "the body cannot be read", form(png), {"Content-Type": "multipart/form-data"}),
        "without an image": (422, "image: ", form(png, name="picture"), FORM),
        "with a text for the image": (422, "image: ", text_part, FORM),
        "of 2,000 parts": (400, "the body cannot be read", form(b"").removesuffix(b"--limit--\r\n") * 2000, FORM),
        "with a long head": (400, "the body", b"--limit\r\n" + b"X-A: " + b"a" * 100_000, FORM),
        "that is a PNG": (415, "has to be multipart", png, {"Content-Type": "image/png"}),
        "without a type": (415, "has to be multipart", png, {"Content-Type": ""}),
    }
    return [
        *(_picture(f"query {query}", png, 422, message, query=f"?{query}") for query, message in queries.items()),
        *(
            BadRequest(f"a form {name}", "POST", "/search/image", status, message, body, headers)
            for name, (status, message, body, headers) in bodies.items()
        ),
    ]


BAD_REQUESTS = [*_bodies(), *_headers(), *_paths(), *_images(), *_forms()]

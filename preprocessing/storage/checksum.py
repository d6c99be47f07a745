"""Checksums of objects on S3: whether bytes are those that an answer of the server describes."""

import hashlib
import io
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

# Under this name what we upload carries its own SHA-256, in hexadecimal.
SHA256 = "sha256"

_MD5_ETAG = re.compile(r"[0-9a-f]{32}")
_PART = re.compile(r"bytes (\d+)-(\d+)/.*")
_MD5 = partial(hashlib.md5, usedforsecurity=False)


def is_intact(answer: Mapping[str, Any], file: io.BufferedRandom | io.BytesIO) -> bool:
    """Return whether a file holds the bytes that an answer describes, as far as it tells (of a part, the length)."""
    size = file.seek(0, io.SEEK_END)
    part = _PART.fullmatch(answer.get("ContentRange", ""))
    if part is not None:
        return size == int(part[2]) - int(part[1]) + 1
    file.seek(0)
    own = answer.get("Metadata", {}).get(SHA256)
    expected = own or md5_of(answer)
    is_expected = expected is None or hashlib.file_digest(file, "sha256" if own else _MD5).hexdigest() == expected
    return size == answer["ContentLength"] and is_expected


def is_stored(head: Mapping[str, Any] | None, path: Path, digest: str) -> bool:
    """Return whether an object, by the answer of head_object, is the file that was sent, whose SHA-256 is `digest`."""
    if head is None or head["ContentLength"] != path.stat().st_size or head["Metadata"].get(SHA256) != digest:
        return False
    md5 = md5_of(head)
    with path.open("rb") as file:
        return md5 is None or hashlib.file_digest(file, _MD5).hexdigest() == md5


def md5_of(answer: Mapping[str, Any]) -> str | None:
    """Return the MD5 that an answer's ETag is; None for objects in parts or encrypted ones, whose ETag is another."""
    etag = str(answer.get("ETag", "")).strip('"')
    is_encrypted = "SSECustomerAlgorithm" in answer or "kms" in answer.get("ServerSideEncryption", "")
    return etag if _MD5_ETAG.fullmatch(etag) and not is_encrypted else None

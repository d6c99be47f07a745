"""Checksums of objects on S3: what an answer says about the bytes that belong to it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

# Under this name what we upload carries its own SHA-256, in hexadecimal.
SHA256 = "sha256"

_MD5 = re.compile(r"[0-9a-f]{32}")


class Checksum:
    """Hashes a body and compares it with what the answer that brought it says.

    Args:
        answer: of get_object.
    """

    def __init__(self, answer: Mapping[str, Any]) -> None:
        own, md5 = answer.get("Metadata", {}).get(SHA256), md5_of(answer)
        self._expected = own or md5
        self._hash = hashlib.sha256() if own else hashlib.md5(usedforsecurity=False)

    def update(self, chunk: bytes) -> None:
        """Take the next bytes."""
        if self._expected is not None:
            self._hash.update(chunk)

    def fits(self) -> bool:
        """Whether the bytes are the right ones, as far as the answer tells: some ETags are no checksum."""
        return self._expected is None or self._hash.hexdigest() == self._expected


def md5_of(answer: Mapping[str, Any]) -> str | None:
    """The MD5 that an answer's ETag is; None for objects in parts or encrypted ones, whose ETag is something else."""
    etag = str(answer.get("ETag", "")).strip('"')
    is_encrypted = "SSECustomerAlgorithm" in answer or "kms" in answer.get("ServerSideEncryption", "")
    return etag if _MD5.fullmatch(etag) and not is_encrypted else None

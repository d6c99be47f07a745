"""Checksums of a server's answers, which tell whether bytes arrived intact."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import pytest

from preprocessing.storage.s3 import is_intact, is_stored, md5_of


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_etags_that_are_no_md5() -> None:
    assert md5_of({"ETag": f'"{md5(b"x")}"'}) == md5(b"x")
    assert md5_of({"ETag": f'"{md5(b"x")}-2"'}) is None
    assert md5_of({"ETag": f'"{md5(b"x")}"', "ServerSideEncryption": "aws:kms"}) is None
    assert md5_of({"ETag": f'"{md5(b"x")}"', "ServerSideEncryption": "AES256"}) == md5(b"x")


@pytest.mark.parametrize(
    ("answer", "fits"),
    [
        ({"ETag": f'"{md5(b"body")}"'}, True),
        ({"ETag": f'"{md5(b"other")}"'}, False),
        ({"ETag": '"0-2"'}, True),  # says nothing
        ({"ETag": '"0-2"', "ContentLength": 5}, False),
        ({"ETag": '"0-2"', "Metadata": {"sha256": sha256(b"body")}}, True),
        ({"ETag": f'"{md5(b"body")}"', "Metadata": {"sha256": sha256(b"other")}}, False),
        ({"ETag": f'"{md5(b"the body")}"', "ContentRange": "bytes 4-7/8"}, True),
        ({"ETag": f'"{md5(b"the body")}"', "ContentRange": "bytes 3-7/8"}, False),
    ],
)
def test_what_was_read(answer: dict[str, Any], fits: bool) -> None:
    assert is_intact({"ContentLength": 4, **answer}, io.BytesIO(b"body")) is fits


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"ETag": '"0-2"'}, True),  # in parts
        ({"ETag": f'"{md5(b"other")}"'}, False),
        ({"ContentLength": 5}, False),
        ({"Metadata": {"sha256": sha256(b"other")}}, False),
        ({"Metadata": {}}, False),
    ],
)
def test_what_was_written(tmp_path: Path, change: dict[str, Any], fits: bool) -> None:
    (tmp_path / "file").write_bytes(b"body")
    head = {"ETag": f'"{md5(b"body")}"', "ContentLength": 4, "Metadata": {"sha256": sha256(b"body")}}
    assert is_stored({**head, **change}, tmp_path / "file", sha256(b"body")) is fits
    assert not is_stored(None, tmp_path / "file", sha256(b"body"))

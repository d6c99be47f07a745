"""What is sent in an upload and what is made of the answers; the server is a function of the test."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest

from preprocessing.storage import StorageError, upload
from preprocessing.storage.checksum import Checksum, md5_of


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


class Server:
    """Keeps one object, and loses the answers that it is told to lose."""

    def __init__(self, lost: str = "", etag: str | None = None) -> None:
        self.lost, self.etag = lost, etag
        self.parts: dict[int, bytes] = {}
        self.data: bytes | None = None
        self.calls: list[str] = []

    def __call__(self, operation: str, **parameters: Any) -> dict[str, Any]:
        self.calls.append(operation)
        answer: dict[str, Any] = {}
        if "Metadata" in parameters:
            self.metadata = parameters["Metadata"]
        if "Body" in parameters:
            assert base64.b64decode(parameters["ContentMD5"]).hex() == md5(parameters["Body"])
            answer["ETag"] = f'"{self.etag or md5(parameters["Body"])}"'
        if operation == "put_object":
            self.data = parameters["Body"]
        elif operation == "create_multipart_upload":
            answer["UploadId"] = "1"
        elif operation == "upload_part":
            self.parts[parameters["PartNumber"]] = parameters["Body"]
        elif operation == "complete_multipart_upload":
            self.data = b"".join(self.parts[number] for number in sorted(self.parts))
        elif operation == "head_object":
            if self.data is None:
                raise FileNotFoundError("no such object")
            answer |= {"ContentLength": len(self.data), "Metadata": self.metadata}
        if operation == self.lost:
            raise StorageError("no answer")
        return answer


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(upload, "PART_BYTES", 10)
    (tmp_path / "file").write_bytes(bytes(range(25)))
    return tmp_path / "file"


def test_a_small_file_goes_at_once(file: Path) -> None:
    file.write_bytes(bytes(10))
    server = Server()
    assert upload.upload_file(server, file)
    assert (server.data, server.calls) == (bytes(10), ["put_object"])
    assert server.metadata == {"sha256": hashlib.sha256(bytes(10)).hexdigest()}


def test_a_large_file_goes_in_parts(file: Path) -> None:
    server = Server()
    assert upload.upload_file(server, file)
    assert server.data == file.read_bytes()
    assert [len(server.parts[number]) for number in (1, 2, 3)] == [10, 10, 5]
    assert server.metadata == {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


def test_another_etag_is_another_content(file: Path) -> None:
    assert upload.upload_file(Server(etag="0" * 32), file) is False
    file.write_bytes(b"small")
    assert upload.upload_file(Server(etag="0" * 32), file) is False


def test_a_lost_answer_to_the_end_is_looked_for_in_the_object(file: Path) -> None:
    assert upload.upload_file(Server(lost="complete_multipart_upload"), file)


def test_what_fails_is_aborted(file: Path) -> None:
    server = Server(lost="upload_part")
    with pytest.raises(StorageError, match="no answer"):
        upload.upload_file(server, file)
    assert server.calls[-1] == "abort_multipart_upload"
    assert server.data is None


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
        ({"ETag": '"0-2"', "Metadata": {"sha256": hashlib.sha256(b"body").hexdigest()}}, True),
        ({"ETag": f'"{md5(b"body")}"', "Metadata": {"sha256": hashlib.sha256(b"other").hexdigest()}}, False),
    ],
)
def test_checksum(answer: dict[str, Any], fits: bool) -> None:
    checksum = Checksum(answer)
    checksum.update(b"bo")
    checksum.update(b"dy")
    assert checksum.fits() is fits

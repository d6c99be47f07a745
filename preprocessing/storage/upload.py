"""A local file onto S3: at once, or in parts where it is large; each part and the whole checked by their checksums."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from preprocessing.storage.checksum import SHA256, md5_of
from preprocessing.storage.errors import StorageError

PART_BYTES = 16 << 20
_MOST_PARTS = 10_000
_THREADS = 4


class Call(Protocol):
    """One request to S3 about the object in question; repeats what helps, raises StorageError."""

    def __call__(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """Return the answer."""
        ...


def upload_file(call: Call, path: Path) -> bool:
    """Send a file; return whether the server has stored just that.

    Raises:
        StorageError: the server does not answer or refuses.
    """
    return _at_once(call, path.read_bytes()) if path.stat().st_size <= PART_BYTES else _in_parts(call, path)


def _at_once(call: Call, data: bytes) -> bool:
    answer = call("put_object", Body=data, Metadata={SHA256: hashlib.sha256(data).hexdigest()}, **_content_md5(data))
    return md5_of(answer) in (None, _md5(data).hex())


def _in_parts(call: Call, path: Path) -> bool:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    upload = call("create_multipart_upload", Metadata={SHA256: digest})["UploadId"]
    size = path.stat().st_size
    part_bytes = max(PART_BYTES, -(-size // _MOST_PARTS))

    def send(number: int) -> dict[str, Any] | None:
        with path.open("rb") as file:
            file.seek((number - 1) * part_bytes)
            data = file.read(part_bytes)
        answer = call("upload_part", UploadId=upload, PartNumber=number, Body=data, **_content_md5(data))
        is_stored = md5_of(answer) in (None, _md5(data).hex())
        return {"PartNumber": number, "ETag": answer["ETag"]} if is_stored else None

    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            sent = list(pool.map(send, range(1, -(-size // part_bytes) + 1)))
        parts = [part for part in sent if part is not None]
        if len(parts) < len(sent):
            call("abort_multipart_upload", UploadId=upload)
            return False
        return _completed(call, upload, parts, size, digest)
    except BaseException:
        # What is not aborted is kept, and paid for, without ever being seen.
        with contextlib.suppress(StorageError, FileNotFoundError):
            call("abort_multipart_upload", UploadId=upload)
        raise


def _completed(call: Call, upload: str, parts: list[dict[str, Any]], size: int, digest: str) -> bool:
    """Put the parts together; whether the object that is there now is the one that was sent."""
    lost: StorageError | FileNotFoundError | None = None
    try:
        call("complete_multipart_upload", UploadId=upload, MultipartUpload={"Parts": parts})
    except (StorageError, FileNotFoundError) as error:
        lost = error  # or only the answer was, and the server says of our second request that there is no such upload
    head = call("head_object")
    is_ours = int(head["ContentLength"]) == size and head["Metadata"].get(SHA256) == digest
    if lost is not None and not is_ours:
        raise lost
    return is_ours


def _content_md5(data: bytes) -> dict[str, str]:
    """The header by which the server checks what reaches it."""
    return {"ContentMD5": base64.b64encode(_md5(data)).decode()}


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()

"""A folder on S3, through boto3: any endpoint, credentials from the usual chain, nothing believed that is not verified.

Settings are those of every AWS tool, in the environment or in ~/.aws: AWS_ENDPOINT_URL for a server of one's own,
AWS_REGION, AWS_PROFILE, AWS_CA_BUNDLE, AWS_MAX_ATTEMPTS. Deletions in batches are not used, which not every server has;
conditional writes only by leases, which do without where there are none.
"""

from __future__ import annotations

import logging
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from preprocessing.storage.address import split_s3
from preprocessing.storage.atomic import open_atomic
from preprocessing.storage.base import Entry
from preprocessing.storage.checksum import Checksum
from preprocessing.storage.errors import (
    CHANGED,
    REPEATED,
    StorageError,
    UnconditionalError,
    code_of,
    endpoint,
    explained,
    is_missing,
)
from preprocessing.storage.upload import upload_file

log = logging.getLogger(__name__)

Answer = Mapping[str, Any]
Write = Callable[[bytes], Any]

_ATTEMPTS = 8
_CONNECT_SECONDS, _READ_SECONDS = 10, 60
_CONNECTIONS = 32
_CHUNK = 1 << 20
_LONGEST_WAIT_SECONDS = 20.0


def attempts() -> int:
    """How often anything is tried before it is an error."""
    return int(os.environ.get("AWS_MAX_ATTEMPTS", _ATTEMPTS))


def client() -> Any:
    """The boto3 client of this process; its threads share it."""
    return _client(os.getpid())


@lru_cache(maxsize=1)
def _client(_process: int) -> Any:
    # A connection that a fork shares with its parent would mix up their answers: hence one for each process.
    import boto3
    from botocore.config import Config

    settings = Config(
        retries={"mode": "adaptive", "total_max_attempts": attempts()},
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        max_pool_connections=_CONNECTIONS,
        # We send and compare checksums that every server knows (Content-MD5, ETag, our own SHA-256).
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.Session().client("s3", config=settings)


class S3Storage:
    """A bucket, or a folder in one; see :class:`~preprocessing.storage.base.Storage`.

    botocore repeats requests that were throttled, reset or not answered, at a pace that adapts. On top of that a body
    that was cut short is continued where it stopped, and one whose checksum is wrong is read again. What we upload
    carries its SHA-256, by which it is verified when it is read; other people's objects are verified by their ETag
    where that is an MD5.

    Args:
        address: ``s3://bucket`` or ``s3://bucket/folder``.

    Raises:
        ValueError: it is no such address.
    """

    def __init__(self, address: str) -> None:
        self._bucket, self._folder = split_s3(address)

    @property
    def address(self) -> str:
        """The folder's address, without a slash at its end."""
        return f"s3://{self._bucket}/{self._folder}".rstrip("/")

    def list(self, folder: str = "") -> Iterator[Entry]:
        """Objects at any depth by name, a thousand a request."""
        prefix = "/".join(part for part in (self._folder, folder.strip("/")) if part)
        parameters: dict[str, str] = {"Prefix": f"{prefix}/" if prefix else ""}
        while True:
            page = self._call("list", folder, "list_objects_v2", **parameters)
            for item in page.get("Contents", ()):
                if not item["Key"].endswith("/"):  # the mark that some tools leave for a folder
                    name = item["Key"].removeprefix(f"{self._folder}/") if self._folder else item["Key"]
                    yield Entry(name, int(item["Size"]), item["ETag"].strip('"'))
            if not page.get("IsTruncated"):
                return
            parameters["ContinuationToken"] = page["NextContinuationToken"]

    def find(self, name: str) -> Entry | None:
        """An object, None where there is no such object."""
        try:
            head = self._call("look for", name, "head_object", Key=self._key(name))
        except FileNotFoundError:
            return None
        return Entry(name, int(head["ContentLength"]), head["ETag"].strip('"'))

    def read(self, name: str) -> bytes:
        """A whole object."""
        data = bytearray()

        def begin() -> Write:
            data.clear()
            return data.extend

        self._verified(name, begin)
        return bytes(data)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """A part of an object."""
        data = bytearray()

        def begin(_answer: Answer) -> Write:
            data.clear()
            return data.extend

        if length > 0:
            self._body(name, begin, start, start + length)
        return bytes(data)

    def download(self, name: str, path: Path) -> None:
        """Copy an object to a local path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(path) as file:

            def begin() -> Write:
                file.seek(0)
                file.truncate()
                return file.write

            self._verified(name, begin)

    def upload(self, path: Path, name: str) -> None:
        """Copy a local file to S3, in parts where it is large; the server checks each, and we the whole."""

        def call(operation: str, **parameters: Any) -> dict[str, Any]:
            return self._call("write", name, operation, Key=self._key(name), **parameters)

        for attempt in range(attempts()):
            if upload_file(call, path):
                return
            log.warning("%s: the server has stored something else than was sent; sent again", self._where(name))
            _wait(attempt)
        self.delete(name)
        raise StorageError(
            f"cannot write {self._where(name)} (S3 at {endpoint()}): {attempts()} times something else was stored than "
            "was sent; check the server's disks and what lies between"
        )

    def write(self, name: str, data: bytes) -> str:
        """Write a small object; return its version.

        Raises:
            StorageError: the server does not answer or refuses.
        """
        return self._put(name, data)

    def write_if(self, name: str, data: bytes, version: str | None) -> str | None:
        """Write a small object only where the one that is there is of this version still, or where there is none.

        Args:
            name: of the object.
            data: its bytes.
            version: as `find` and this tell it; None: there is no such object.

        Returns:
            Its new version; None where another has been faster.

        Raises:
            UnconditionalError: the server has no conditional writes.
            StorageError: the server does not answer or refuses.
        """
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": f'"{version}"'}
        try:
            return self._put(name, data, **condition)
        except (_ChangedError, FileNotFoundError):
            return None

    def age(self, name: str) -> tuple[str, float] | None:
        """An object's version, and the seconds since it was written by the server's own clock; None: there is none."""
        try:
            head = self._call("look for", name, "head_object", Key=self._key(name))
        except FileNotFoundError:
            return None
        now = parsedate_to_datetime(head["ResponseMetadata"]["HTTPHeaders"]["date"])
        return head["ETag"].strip('"'), (now - head["LastModified"]).total_seconds()

    def copy(self, name: str, target: str) -> None:
        """Let the server copy an object, with what we have noted about it."""
        source = {"Bucket": self._bucket, "Key": self._key(name)}
        self._call("copy", name, "copy_object", Key=self._key(target), CopySource=source)

    def delete(self, name: str) -> None:
        """Remove an object."""
        self._call("delete", name, "delete_object", Key=self._key(name))

    def _put(self, name: str, data: bytes, **conditions: str) -> str:
        answer = self._call("write", name, "put_object", Key=self._key(name), Body=data, **conditions)
        return str(answer["ETag"]).strip('"')

    def _verified(self, name: str, begin: Callable[[], Write]) -> None:
        """Hand on a whole object with the right checksum; `begin` gives what takes its bytes, anew at a restart."""
        for attempt in range(attempts()):
            checksums: list[Checksum] = []

            def begin_both(answer: Answer, checksums: list[Checksum] = checksums) -> Write:
                checksum, write = Checksum(answer), begin()
                checksums[:] = [checksum]

                def both(chunk: bytes) -> None:
                    checksum.update(chunk)
                    write(chunk)

                return both

            self._body(name, begin_both)
            if all(checksum.fits() for checksum in checksums):
                return
            log.warning("%s: the checksum is wrong; read again", self._where(name))
            _wait(attempt)
        raise StorageError(
            f"cannot read {self._where(name)} (S3 at {endpoint()}): {attempts()} times its checksum was wrong. If the "
            "object itself is damaged, delete it and let what wrote it write it again"
        )

    def _body(self, name: str, begin: Callable[[Answer], Write], start: int = 0, stop: int | None = None) -> None:
        """Hand on the bytes from start to stop (None: all), going on where the connection breaks.

        An object that is replaced by another meanwhile is begun anew.
        """
        position, failures = start, 0
        first: Answer | None = None
        while True:
            answer = self._get(name, position, stop)
            if first is not None and (answer is None or answer["ETag"] != first["ETag"]):
                first, position = None, start
                failures = self._failed(name, failures, OSError("it is replaced again and again"))
                continue
            if answer is None:  # the object ends before the range
                return
            if first is None:
                first, write = answer, begin(answer)
            end = position + _length(answer)
            broken: Exception = OSError("the answer ended early")
            try:
                for chunk in _chunks(answer["Body"]):
                    write(chunk)
                    position, failures = position + len(chunk), 0
            except _CutShortError as error:
                broken = error
            if position >= end:
                return
            failures = self._failed(name, failures, broken)

    def _failed(self, name: str, failures: int, error: Exception) -> int:
        """Count one more failure in a row, and wait; raises where it is one too many."""
        if failures + 1 >= attempts():
            raise explained(error, "read", self._where(name)) from error
        _wait(failures)
        return failures + 1

    def _get(self, name: str, position: int, stop: int | None) -> dict[str, Any] | None:
        """An answer with a body that begins at the position; None where the object ends before it."""
        parameters = {"Key": self._key(name)}
        if position or stop is not None:
            parameters["Range"] = f"bytes={position}-{'' if stop is None else stop - 1}"
        try:
            return self._call("read", name, "get_object", **parameters)
        except _OutOfRangeError:
            return None

    def _call(self, what: str, name: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """One request; what botocore does not repeat but may succeed when made again is repeated here."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        conditional = not parameters.keys().isdisjoint(("IfMatch", "IfNoneMatch"))
        for attempt in range(attempts()):
            try:
                answer: dict[str, Any] = getattr(client(), operation)(Bucket=self._bucket, **parameters)
                return answer
            except (BotoCoreError, ClientError, ResponseParserError) as error:
                if is_missing(error):
                    raise FileNotFoundError(f"there is no object {self._where(name)}") from error
                if code_of(error) == "InvalidRange":
                    raise _OutOfRangeError from error
                if code_of(error) in CHANGED:
                    raise _ChangedError from error
                if code_of(error) == "NotImplemented" and conditional:
                    raise UnconditionalError(f"S3 at {endpoint()} has no conditional writes") from error
                again = code_of(error) in REPEATED or isinstance(error, ResponseParserError)
                if not again or attempt == attempts() - 1:
                    raise explained(error, what, self._where(name)) from error
                _wait(attempt)
        raise AssertionError("the last attempt returns or raises")

    def _key(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name

    def _where(self, name: str) -> str:
        return f"{self.address}/{name}".rstrip("/")


def _length(answer: Answer) -> int:
    """Bytes of a body; where it is a part, by the range itself, which cannot be cut without being seen."""
    part = re.fullmatch(r"bytes (\d+)-(\d+)/.*", answer.get("ContentRange", ""))
    return int(part[2]) - int(part[1]) + 1 if part else int(answer["ContentLength"])


def _chunks(body: Any) -> Iterator[bytes]:
    """The bytes of a body, to where its connection breaks."""
    from botocore.exceptions import BotoCoreError
    from urllib3.exceptions import HTTPError

    try:
        yield from body.iter_chunks(_CHUNK)
    except (BotoCoreError, HTTPError, OSError) as error:
        raise _CutShortError(str(error)) from error
    finally:
        body.close()


def _wait(attempt: int) -> None:
    """Wait longer after every attempt (from 0): a random share, so that many processes do not return at once."""
    time.sleep(random.random() * min(2.0**attempt, _LONGEST_WAIT_SECONDS))


class _CutShortError(Exception):
    """The connection broke before the end of a body."""


class _ChangedError(Exception):
    """The object is not as a conditional write wants it to be."""


class _OutOfRangeError(Exception):
    """The object ends before the range that was asked for."""

"""A folder on S3 through boto3: any endpoint, credentials from the usual chain, every byte verified that can be.

Settings are those of every AWS tool, in the environment or in ~/.aws: AWS_ENDPOINT_URL for a server of one's own,
AWS_REGION, AWS_PROFILE, AWS_CA_BUNDLE, AWS_MAX_ATTEMPTS. Batch deletions are not used, which not every server has;
conditional writes only by leases, which do without if the server has none.
"""

import contextlib
import hashlib
import io
import logging
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from urllib3.exceptions import HTTPError

from preprocessing.storage.address import split_s3
from preprocessing.storage.atomic import open_atomic
from preprocessing.storage.base import Entry, StorageError
from preprocessing.storage.s3_errors import ERRORS, ChangedError, DamagedError, is_transient, translated

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

# Larger files travel in parts of this size.
PART_BYTES = 16 << 20

_ATTEMPTS = 8
_CONNECT_SECONDS, _READ_SECONDS = 10, 60
_CONNECTIONS, _CONNECTIONS_A_FILE = 32, 4
_LONGEST_WAIT_SECONDS = 20.0

# Under this name what we upload carries its own SHA-256, in hexadecimal.
_SHA256 = "sha256"
_MD5_ETAG = re.compile(r"[0-9a-f]{32}")
_PART = re.compile(r"bytes (\d+)-(\d+)/.*")
_MD5 = partial(hashlib.md5, usedforsecurity=False)


def attempts() -> int:
    """Return how often anything is tried before it is an error."""
    return int(os.environ.get("AWS_MAX_ATTEMPTS", _ATTEMPTS))


def patience() -> float:
    """Return the seconds after which a request that is never answered has become an error, at the latest."""
    return attempts() * (_CONNECT_SECONDS + _READ_SECONDS + _LONGEST_WAIT_SECONDS)


@lru_cache(maxsize=1)
def client() -> Any:
    """Return the boto3 client of this process; its threads share it."""
    settings = Config(
        retries={"mode": "adaptive", "total_max_attempts": attempts()},
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        max_pool_connections=_CONNECTIONS,
        # boto3's newer checksums (CRC in a trailer) are refused by many servers that are not AWS. Without them it signs
        # the SHA-256 of every body that it sends, which all servers check; what is read we check ourselves.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    # Of a session of its own: threads may ask at once, for which boto3's default one is not made.
    made = boto3.Session().client("s3", config=settings)
    listed = made.meta.service_model.operation_model("ListObjectsV2").output_shape.members["Contents"].member.members
    # What botocore reads of each object besides, its time above all, takes six sevenths of the time of a listing.
    for name in listed.keys() - {"Key", "Size", "ETag"}:
        del listed[name]
    return made


# A connection that a fork shares with its parent would mix up their answers.
os.register_at_fork(after_in_child=client.cache_clear)


def _transfer() -> TransferConfig:
    return TransferConfig(
        multipart_threshold=PART_BYTES,
        multipart_chunksize=PART_BYTES,
        max_concurrency=_CONNECTIONS_A_FILE,
        num_download_attempts=attempts(),
    )


class S3Storage:
    """A bucket, ``s3://bucket``, or a folder in one; see :class:`~preprocessing.storage.base.LocalStorage`.

    botocore repeats requests that were throttled, reset or not answered, at a pace that adapts; its transfer manager
    gets a part again that was cut short. On top of that an object whose checksum is wrong is read or written again.
    What we upload carries its SHA-256, by which it is verified when it is read; other objects are verified by their
    ETag if that is an MD5.
    """

    def __init__(self, address: str) -> None:
        self._bucket, self._folder = split_s3(address)
        self.address = f"s3://{self._bucket}/{self._folder}".rstrip("/")

    def list(self, folder: str = "") -> Iterator[Entry]:
        """Yield objects at any depth by name, a thousand a request."""
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
        """Return an object's size and version, None if there is no such object."""
        head = self._head(name)
        return None if head is None else Entry(name, int(head["ContentLength"]), head["ETag"].strip('"'))

    def read(self, name: str, **part: str) -> bytes:
        """Return the contents of an object in one request, or of a part of it, `Range`, as HTTP writes one."""

        def get() -> bytes:
            """Get the bytes once, and compare them with their checksum."""
            answer = client().get_object(Bucket=self._bucket, Key=self._key(name), **part)
            try:
                data: bytes = answer["Body"].read()
            except (BotoCoreError, HTTPError, OSError) as error:
                raise DamagedError(f"its body was cut short ({error})", "check the server and the network") from error
            _require_intact(answer, io.BytesIO(data))
            return data

        return self._request("read", name, get)

    def download(self, name: str, path: Path) -> None:
        """Copy an object to a local path, in parts if it is large."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(path) as file:

            def get() -> None:
                """Get the object into the file once, and compare it with its checksum."""
                head = client().head_object(Bucket=self._bucket, Key=self._key(name))
                file.seek(0)
                file.truncate()
                client().download_fileobj(self._bucket, self._key(name), file, Config=_transfer())
                # boto3 compares a body with checksums that it stored itself, which few servers keep.
                _require_intact(head, file)

            self._request("read", name, get)

    def upload(self, path: Path, name: str) -> None:
        """Copy a local file to S3, in parts if it is large; the server checks each, and we the object."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()

        def send() -> None:
            """Send the file once, and compare what is stored with it."""
            with path.open("rb") as file:
                metadata = {"Metadata": {_SHA256: digest}}
                client().upload_fileobj(file, self._bucket, self._key(name), ExtraArgs=metadata, Config=_transfer())
            if not is_stored(self._head(name), path, digest):
                self.delete(name)
                raise DamagedError("something else was stored than was sent", "check its disks and the network")

        try:
            self._request("write", name, send)
        except (StorageError, FileNotFoundError):
            # If only the answer to the end of an upload was lost, the second request is for no known upload.
            with contextlib.suppress(StorageError):
                if is_stored(self._head(name), path, digest):
                    return
            raise

    def write(self, name: str, data: bytes, **conditions: str) -> str:
        """Write a small object; return its version."""
        answer = self._call("write", name, "put_object", Key=self._key(name), Body=data, **conditions)
        return str(answer["ETag"]).strip('"')

    def write_if(self, name: str, data: bytes, version: str | None) -> str | None:
        """Write a small object if it has this version (None: is not there yet); return the new one, None if not."""
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": f'"{version}"'}
        try:
            return self.write(name, data, **condition)
        except (ChangedError, FileNotFoundError):
            return None

    def age(self, name: str) -> tuple[str, float] | None:
        """Return an object's version and its age in seconds by the server's own clock; None: there is no object."""
        head = self._head(name)
        if head is None:
            return None
        now = parsedate_to_datetime(head["ResponseMetadata"]["HTTPHeaders"]["date"])
        return head["ETag"].strip('"'), (now - head["LastModified"]).total_seconds()

    def delete(self, name: str) -> None:
        """Remove an object."""
        self._call("delete", name, "delete_object", Key=self._key(name))

    def _head(self, name: str) -> dict[str, Any] | None:
        try:
            return self._call("look for", name, "head_object", Key=self._key(name))
        except FileNotFoundError:
            return None

    def _call(self, what: str, name: str, operation: str, **parameters: Any) -> dict[str, Any]:
        return self._request(what, name, lambda: getattr(client(), operation)(Bucket=self._bucket, **parameters))

    def _request(self, what: str, name: str, request: Callable[[], Answer]) -> Answer:
        """Make a request or a transfer, and repeat it if it may succeed the next time but botocore does not."""
        where = f"{self.address}/{name}".rstrip("/")
        for attempt in range(attempts()):
            try:
                return request()
            except (DamagedError, *ERRORS) as error:
                if not is_transient(error) or attempt == attempts() - 1:
                    raise translated(error, what, where) from error
                log.warning("cannot %s %s: %s; tried again", what, where, error)
            # A random part, so that many processes do not return at once.
            time.sleep(random.random() * min(2.0**attempt, _LONGEST_WAIT_SECONDS))
        raise AssertionError("the last attempt returns or raises")

    def _key(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name


def _require_intact(answer: dict[str, Any], file: io.BytesIO | io.BufferedRandom) -> None:
    if not is_intact(answer, file):
        raise DamagedError("its checksum was wrong", "delete the object, and let what wrote it write it again")


def is_intact(answer: Mapping[str, Any], file: io.BufferedRandom | io.BufferedReader | io.BytesIO) -> bool:
    """Return whether a file holds the bytes that an answer describes, as far as it tells (of a part, the length)."""
    size = file.seek(0, io.SEEK_END)
    part = _PART.fullmatch(answer.get("ContentRange", ""))
    if part is not None:
        return size == int(part[2]) - int(part[1]) + 1
    file.seek(0)
    own = answer.get("Metadata", {}).get(_SHA256)
    expected = own or md5_of(answer)
    is_expected = expected is None or hashlib.file_digest(file, "sha256" if own else _MD5).hexdigest() == expected
    return size == answer["ContentLength"] and is_expected


def is_stored(head: Mapping[str, Any] | None, path: Path, digest: str) -> bool:
    """Return whether an object, by the answer of head_object, is the file that was sent, whose SHA-256 is `digest`."""
    if head is None or head["Metadata"].get(_SHA256) != digest:
        return False
    with path.open("rb") as file:
        return is_intact({**head, "Metadata": {}}, file)  # by the server's own checksum, if it has one


def md5_of(answer: Mapping[str, Any]) -> str | None:
    """Return the MD5 that an answer's ETag is; None for objects in parts or encrypted ones, whose ETag is another."""
    etag = str(answer.get("ETag", "")).strip('"')
    is_encrypted = "SSECustomerAlgorithm" in answer or "kms" in answer.get("ServerSideEncryption", "")
    return etag if _MD5_ETAG.fullmatch(etag) and not is_encrypted else None

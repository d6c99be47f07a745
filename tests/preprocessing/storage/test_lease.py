"""A lease on S3 has one holder at a time, until it is released or expires; with conditional writes and without."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from preprocessing.storage import lease, s3
from preprocessing.storage.base import BusyError, StorageError
from preprocessing.storage.lease import FolderLock, Holder, Lease, held
from preprocessing.storage.s3 import S3Storage

SECONDS = 120


class Server:
    """The part of boto3's client that leases use, over a dictionary, with a clock that the test moves."""

    def __init__(self, conditional: bool) -> None:
        self.conditional, self.is_away = conditional, False
        self.ignores_conditions, self.loses_answer = False, False
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self._lock = threading.Lock()

    def put_object(self, Bucket: str, Key: str, Body: bytes, **conditions: str) -> dict[str, Any]:
        with self._lock:
            self._answer("PutObject")
            if conditions and not self.conditional:
                raise error("NotImplemented", "PutObject")
            there = etag(self.objects[Key][0]) if Key in self.objects else None
            if self.ignores_conditions:
                conditions = {}
            if conditions.get("IfNoneMatch") == "*" and there is not None:
                raise error("PreconditionFailed", "PutObject")
            if "IfMatch" in conditions and there != conditions["IfMatch"]:
                raise error("NoSuchKey" if there is None else "PreconditionFailed", "PutObject")
            self.objects[Key] = (Body, self.time)
            if conditions and self.loses_answer:  # so botocore sends it again
                raise error("PreconditionFailed", "PutObject")
            return {"ETag": etag(Body)}

    def head_object(self, Bucket: str, Key: str) -> dict[str, Any]:
        self._answer("HeadObject")
        if Key not in self.objects:
            raise error("404", "HeadObject")
        body, written = self.objects[Key]
        headers = {"date": format_datetime(self.time, usegmt=True)}
        return {"ETag": etag(body), "LastModified": written, "ResponseMetadata": {"HTTPHeaders": headers}}

    def get_object(self, Bucket: str, Key: str) -> dict[str, Any]:
        self._answer("GetObject")
        if Key not in self.objects:
            raise error("NoSuchKey", "GetObject")
        body, _ = self.objects[Key]
        return {"ETag": etag(body), "ContentLength": len(body), "Body": Body(body)}

    def delete_object(self, Bucket: str, Key: str) -> dict[str, Any]:
        self._answer("DeleteObject")
        self.objects.pop(Key, None)
        return {}

    def _answer(self, operation: str) -> None:
        if self.is_away:
            raise error("AccessDenied", operation)


class Body(io.BytesIO):
    def iter_chunks(self, size: int) -> Iterator[bytes]:
        yield self.getvalue()


def etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


def error(code: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}}, operation)


@pytest.fixture(params=[True, False], ids=["conditional", "unconditional"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server(request.param)
    monkeypatch.setattr(s3, "client", lambda: server)
    monkeypatch.setattr(lease, "_RENEWALS", 100 * SECONDS)
    monkeypatch.setattr(lease, "_SETTLE_SECONDS", 0.05)
    return server


def of(host: str, **of: Any) -> Lease:
    """Return a lease that a process of a machine of this name asks for."""
    asked = Lease(S3Storage("s3://bucket/work"), "retrain/work.lock", SECONDS)
    asked._own = asked._own.model_copy(update={"host": host, **of})
    return asked


def held_by(host: str, lost: Any = lambda: None) -> Any:
    return held(of(host), lost)


def test_one_at_a_time(server: Server) -> None:
    with held_by("the first"), pytest.raises(BusyError, match="the first"), held_by("the second"):
        raise AssertionError("two hold it")
    assert server.objects == {}
    with held_by("the third"):
        assert set(server.objects) == {"work/retrain/work.lock"}


def test_of_many_that_ask_at_once_one_gets_it(server: Server) -> None:
    start, got, refused = threading.Barrier(6), [], []

    def ask(number: int) -> None:
        start.wait()
        try:
            with held_by(str(number)):
                got.append(number)
                finished.wait(10)
        except BusyError:
            refused.append(number)
            if len(refused) == 5:
                finished.set()

    finished = threading.Event()
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(ask, range(6)))
    assert (len(got), len(refused)) == (1, 5)


def test_a_holder_that_has_died_is_followed(server: Server) -> None:
    dead = of("the dead")
    dead.take()
    server.time += timedelta(seconds=SECONDS - 1)
    with pytest.raises(BusyError, match="the dead"), held_by("too early"):
        raise AssertionError("it may live still")
    server.time += timedelta(seconds=2)
    with held_by("the next"):
        assert not dead.renew()


def test_a_dead_process_of_this_machine_is_followed_at_once(server: Server) -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    own = os.getpid()  # of which another process was started at another time
    for pid in (process.pid, own):
        dead = of(socket.gethostname(), pid=pid, began="1")
        dead.take()
        with held(of(socket.gethostname()), list):
            assert not dead.renew()


def test_a_holder_that_lives_renews(server: Server) -> None:
    with held_by("the holder"):
        for _ in range(3):
            before = server.objects["work/retrain/work.lock"][0]
            server.time += timedelta(seconds=SECONDS * 0.9)
            wait_until(lambda before=before: server.objects["work/retrain/work.lock"][0] != before)
        with pytest.raises(BusyError, match="the holder"), held_by("another"):
            raise AssertionError("two hold it")


def test_who_was_stopped_for_too_long_is_told(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    told = threading.Event()
    with held_by("the slow", told.set):
        server.time += timedelta(seconds=2 * SECONDS)
        server.put_object("bucket", "work/retrain/work.lock", b'{"host": "the fast", "since": 0, "token": "x"}')
        assert told.wait(10)
    assert "has been lost" in caplog.text
    assert b"the fast" in server.objects["work/retrain/work.lock"][0]  # and it does not let go of what is another's


def test_a_server_that_is_away_for_a_while_costs_nothing(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    told = threading.Event()
    with held_by("the holder", told.set):
        server.is_away = True
        wait_until(lambda: "cannot be renewed" in caplog.text)
        server.is_away = False
        before = server.objects["work/retrain/work.lock"][0]
        wait_until(lambda: server.objects["work/retrain/work.lock"][0] != before)
    assert not told.is_set()
    assert server.objects == {}


def test_an_answer_that_is_lost_costs_nothing(server: Server) -> None:
    """The write is stored, and its repetition is refused, as the object has changed."""
    ours = of("the holder")
    server.loses_answer = True
    ours.take()
    assert ours.renew()
    server.loses_answer = False
    assert ours.renew()
    with pytest.raises(BusyError, match="the holder"):
        of("another").take()
    ours.release()
    assert server.objects == {}


def test_of_two_on_a_server_that_ignores_conditions_one_ends(server: Server) -> None:
    server.ignores_conditions = True
    first, second = of("the first"), of("the second")
    first.take()
    second._write(None)  # it had asked in the same moment
    assert second.renew()
    assert not first.renew()


def test_machines_of_one_name_are_not_mistaken_for_each_other(server: Server) -> None:
    other = of(socket.gethostname(), kernel="that of a copy of this machine", pid=2**22 + 1)
    other.take()
    with pytest.raises(BusyError, match=socket.gethostname()):
        of(socket.gethostname()).take()


def test_a_server_that_refuses_is_an_error(server: Server) -> None:
    server.is_away = True
    with pytest.raises(StorageError, match="AccessDenied"), held_by("anybody"):
        raise AssertionError("nobody holds it")


def wait_until(condition: Any) -> None:
    pause = threading.Event()
    for _ in range(1000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it has not happened in ten seconds")


def test_a_lock_that_goes_while_it_is_looked_at_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of another machine's process goes after it was read, and before its age is asked."""
    lock = FolderLock(tmp_path / "work.lock", 60)
    other = Holder.of_this_process().model_copy(update={"kernel": "another", "host": "another"})
    with monkeypatch.context() as patch:
        patch.setattr(FolderLock, "_read", lambda _self: other)
        lock.take()
    lock.release()
    assert not (tmp_path / "work.json").exists()

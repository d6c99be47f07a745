"""An S3 server for the tests of this folder, one a session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from preprocessing.storage import s3
from tests.integration import faults, s3_server


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3_server.Swift]:
    """A real S3 server, named in the file from which every process of this session reads its AWS settings."""
    server = s3_server.start(tmp_path_factory.mktemp("swift"))
    settings = Path(os.environ["AWS_CONFIG_FILE"])
    settings.write_text(
        f"[default]\naws_access_key_id = {s3_server.ACCESS_KEY}\naws_secret_access_key = {s3_server.SECRET_KEY}\n"
        f"region = {s3_server.REGION}\nendpoint_url = {server.endpoint}\n"
    )
    yield server
    server.stop()
    settings.unlink()


@pytest.fixture
def s3_client(swift: s3_server.Swift, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A client of this process with the settings of one test; what is waited for is short."""
    monkeypatch.setattr(s3, "_LONGEST_WAIT_SECONDS", 0.05)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "4")
    s3._client.cache_clear()
    yield
    s3._client.cache_clear()


@pytest.fixture(scope="session")
def bucket(swift: s3_server.Swift) -> str:
    """The address of a bucket."""
    s3._client.cache_clear()
    s3.client().create_bucket(Bucket="vse")
    return "s3://vse"


@pytest.fixture
def proxy(swift: s3_server.Swift, s3_client: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[faults.FaultyProxy]:
    """A proxy in front of the server, through which this process goes, and which can spoil requests."""
    with faults.faulty_proxy(swift.port) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        s3._client.cache_clear()  # other fixtures may have used it before
        yield running

"""An S3 server for the tests of this folder, one a session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from preprocessing.storage import s3
from tests.integration import faults
from tests.integration.servers_of_s3 import ACCESS_KEY, REGION, SECRET_KEY, S3Server, running


@pytest.fixture(scope="session", params=["moto", pytest.param("swift", marks=pytest.mark.nightly)])
def s3_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server, named in the file from which every process of this session reads its AWS settings.

    Moto, and every night OpenStack Swift: a real server, of which a test may ask alone by `on_swift`.
    """
    with running(request.param, tmp_path_factory.mktemp("s3")) as server:
        settings = Path(os.environ["AWS_CONFIG_FILE"])
        settings.write_text(
            f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
            f"region = {REGION}\nendpoint_url = {server.endpoint}\n"
        )
        yield server
        settings.unlink()


@pytest.fixture
def s3_client(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A client of this process with the settings of one test; what is waited for is short."""
    monkeypatch.setattr(s3, "_LONGEST_WAIT_SECONDS", 0.05)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "4")
    s3.client.cache_clear()
    yield
    s3.client.cache_clear()


@pytest.fixture(scope="session")
def bucket(s3_server: S3Server) -> str:
    """The address of a bucket."""
    s3.client.cache_clear()
    s3.client().create_bucket(Bucket="vse")
    return "s3://vse"


@pytest.fixture
def proxy(s3_server: S3Server, s3_client: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[faults.FaultyProxy]:
    """A proxy in front of the server, through which this process goes, and which can spoil requests."""
    with faults.faulty_proxy(s3_server.port) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        s3.client.cache_clear()  # other fixtures may have used it before
        yield running

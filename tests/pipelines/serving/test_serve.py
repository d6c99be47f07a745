"""Serving from the command line: to this machine alone, or with a token."""

from __future__ import annotations

import pytest

from pipelines.runtime.stage import StageError
from pipelines.serving import serve

TOKEN = "a token of some length"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_the_loopback_needs_no_token(host: str) -> None:
    assert serve.read_token(host, None) is None
    assert serve.read_token(host, "") is None
    assert serve.read_token(host, TOKEN) == TOKEN


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.3", "example.com", "localhost.example.com", ""])
def test_any_other_address_does(host: str) -> None:
    with pytest.raises(StageError, match="can be reached from other machines: set VSE_SERVE_TOKEN"):
        serve.read_token(host, None)
    assert serve.read_token(host, TOKEN) == TOKEN


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_short_token_is_refused(host: str) -> None:
    with pytest.raises(StageError, match="VSE_SERVE_TOKEN has 6 characters; use 16 at least"):
        serve.read_token(host, "secret")

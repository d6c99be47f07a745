"""Secrets in addresses: what is printed, pickled, dumped or logged of them holds `***` instead."""

from __future__ import annotations

import copy
import io
import json
import logging
import pickle
import subprocess
import sys
from dataclasses import dataclass

import pytest

from preprocessing.storage import redaction
from preprocessing.storage.redaction import RedactedError, SecretAddress, redact_logs, redacted

ADDRESSES = {
    "http://user:planted%40one@host:5000": "http://user:***@host:5000",
    "https://planted-token@host/path": "https://***@host/path",
    "postgresql+psycopg2://mlflow:12345@db:5432/mlflow": "postgresql+psycopg2://mlflow:***@db:5432/mlflow",
    "postgresql://db/mlflow?user=a&password=planted&sslmode=on": "postgresql://db/mlflow?user=a&password=***&sslmode=on",
    "redis://:planted@host": "redis://:***@host",
    "http://user:with/slash@host": "http://user:***@host",
    "http://user:with@at@host": "http://user:***@host",
    "postgresql://user:12/34#5@host/db": "postgresql://user:***@host/db",
}
INNOCENT = [
    "http://127.0.0.1:5000",
    "http://127.0.0.1:5000/#/models/name@champion",
    "https://example.com:8080?mail=a@b",
    "sqlite:////home/a:b@c/mlflow.db",
    "s3://bucket/folder/a@b:c",
    "postgresql+psycopg2://",
    "postgresql://mlflow@db/mlflow",
    "models:/scenes@champion",
    "/folder/name@2:3",
    "mail a:b@c, see http://host:80 or d@e",
]


@pytest.mark.parametrize(("given", "printed"), ADDRESSES.items())
def test_an_address_prints_without_its_secret_and_is_revealed_on_demand(given: str, printed: str) -> None:
    @dataclass
    class Holder:
        uri: str

    address = SecretAddress(given)
    shown = [str(address), f"{address}", "%s" % address, json.loads(json.dumps([address]))[0], "".join([address])]  # noqa: UP031
    assert shown == [printed] * 5
    assert repr(Holder(address)) == f"{Holder.__qualname__}(uri={printed!r})"
    for copied in (address, copy.deepcopy(address), SecretAddress(str(address))):
        assert copied == printed
        assert copied.reveal() == given
    assert given.encode() not in pickle.dumps(address)
    assert redacted(f"cannot reach {given!r}: no") == f"cannot reach {printed!r}: no"


@pytest.mark.parametrize("text", INNOCENT)
def test_an_address_without_a_secret_stays_as_it_is(text: str) -> None:
    assert redacted(text) == text
    assert SecretAddress(text) == text
    assert SecretAddress(text).reveal() == text


def test_a_browser_opens_the_address_without_the_user() -> None:
    assert SecretAddress("http://user:planted@host:5000/path").without_user == "http://host:5000/path"
    assert SecretAddress("http://host:5000/a@b").without_user == "http://host:5000/a@b"


def test_another_process_takes_the_secret_from_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    given = "http://user:planted-in-the-environment@host"
    code = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1])).reveal())"
    command = [sys.executable, "-c", code, pickle.dumps(SecretAddress(given)).hex()]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")  # restored at the end, also where it was not set
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "RedactedError: the secret of http://user:***@host is not known to this process" in refused.stderr

    monkeypatch.setattr(redaction, "_addresses", {})
    redaction.give_to_children()
    assert "MLFLOW_TRACKING_URI" not in redaction.os.environ
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://other:password@host")
    with pytest.raises(RedactedError, match=r"set MLFLOW_TRACKING_URI to the whole address"):
        SecretAddress("http://user:***@host").reveal()
    SecretAddress(given)
    redaction.give_to_children()
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == given


def test_messages_have_no_secret_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted/key+of=aws")
    monkeypatch.setenv("VSE_SERVE_TOKEN", "short")  # part of ordinary words
    SecretAddress("http://user:planted%2Dencoded@host")
    text = "short: planted/key+of=aws, planted%2Dencoded, planted-encoded"
    assert redacted(text) == "short: ***, ***, ***"
    assert str(RedactedError(text)) == "short: ***, ***, ***"


def test_logs_have_no_secret() -> None:
    factory = logging.getLogRecordFactory()
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger = logging.Logger("of.a.library")
    logger.addHandler(handler)
    redact_logs.cache_clear()
    try:
        redact_logs()
        redact_logs()
        logger.warning("no answer from %s", "http://user:planted@host")
        try:
            raise ValueError("http://user:planted@host")
        except ValueError:
            logger.exception("it failed after %d tries", 3)
    finally:
        logging.setLogRecordFactory(factory)
    shown = stream.getvalue()
    assert "no answer from http://user:***@host" in shown
    assert "ValueError: http://user:***@host" in shown
    assert "it failed after 3 tries" in shown
    assert "planted@" not in shown

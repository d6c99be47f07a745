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
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from preprocessing.storage import redaction
from preprocessing.storage.redaction import (
    RedactedError,
    SecretAddress,
    redact_logs,
    redacted,
    redacted_values,
    secrets_in,
)

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


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """No secret of one test is known to another."""
    monkeypatch.setattr(redaction, "_secrets", set())
    monkeypatch.setattr(redaction, "_addresses", {})


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
    with pytest.raises(RedactedError, match=r"set MLFLOW_TRACKING_URI to the complete address"):
        SecretAddress("http://user:***@host").reveal()
    SecretAddress(given)
    redaction.give_to_children()
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == given


# Any secret of a user: no line has an end in it, and one of digits alone could be a port.
SECRETS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=8, max_size=24
).map(lambda text: f"x7{text}")
# A token of a cloud or a header.
TOKENS = st.from_regex(r"[A-Za-z0-9+/_-]{8,40}={0,2}", fullmatch=True)
CARRIERS = {
    "an address": "cannot reach postgresql://mlflow:{}@db:5432/mlflow: no answer",
    "a server": "no answer from https://user:{}@host/path, tried 3 times",
}
TOKEN_CARRIERS = {
    "a parameter": "GET https://host/x?a=b&api_key={}&c=d",
    "a shared access signature": "https://account.blob.core.windows.net/c/x?sv=2024&sig={}",
    "a signed request": "https://bucket.s3.amazonaws.com/x?X-Amz-Signature={}&X-Amz-Expires=60",
    "a header": "sent {{'Authorization': 'Bearer {}'}}",
    "a basic header": "Authorization: Basic {}",
    "a connection string": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core.windows.net",
    "JSON": '{{"name": "x", "api_key": "{}"}}',
    "a session": "aws_session_token={}",
    "JSON with a short name": '{{"secret": "{}"}}',
    "an environment": "started with OPENAI_API_KEY={} and HOME=/root",
    "libpq": "host=db password='{} and more' user=mlflow",
}


@pytest.mark.parametrize("carrier", CARRIERS.values(), ids=CARRIERS)
@given(secret=SECRETS)
def test_no_password_stays_in_a_text_whatever_it_is_made_of(carrier: str, secret: str) -> None:
    shown = redacted(carrier.format(secret))
    assert shown == carrier.format("***")
    assert redacted(shown) == shown


@pytest.mark.parametrize("carrier", TOKEN_CARRIERS.values(), ids=TOKEN_CARRIERS)
@given(token=TOKENS)
def test_no_token_stays_in_a_text(carrier: str, token: str) -> None:
    shown = redacted(carrier.format(token))
    assert token not in shown
    assert redacted(shown) == shown


@pytest.mark.parametrize("name", ["password", "AWS_SECRET_ACCESS_KEY", "X-Api-Key", "session_token"])
def test_a_secret_behind_a_colon_is_told_from_words(name: str) -> None:
    assert redacted(f"{name}: hunter2hunter2, and more") == f"{name}: ***, and more"
    for words in (f"{name}: is missing", f"{name}: authorization failed", "tokens: 12345678", "primary_key: 00000017"):
        assert redacted(words) == words


@pytest.mark.parametrize("name", ["MLFLOW_TRACKING_PASSWORD", "OPENAI_API_KEY", "VSE_SERVE_TOKEN", "client_secret"])
@given(secret=SECRETS, text=st.text(max_size=20))
def test_the_value_of_a_secret_variable_stays_in_no_spelling(name: str, secret: str, text: str) -> None:
    assume(secret not in text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, secret)
        for spelled in (secret, repr(secret), json.dumps(secret), quote(secret, safe=""), quote_plus(secret)):
            assert spelled.strip("'\"") not in redacted(f"{text} {spelled} {text}")
        assert redacted_values({"a": [secret, 1], "b": {"c": secret}}) == {"a": ["***", 1], "b": {"c": "***"}}


def test_the_value_of_a_secret_key_is_hidden() -> None:
    assert redacted_values({"s3": {"api_key": "abc"}, "keys": "abc"}) == {"s3": {"api_key": "***"}, "keys": "abc"}


@given(
    address=st.from_regex(
        r"(postgresql|redis|https?)://[a-z0-9.-]{1,9}(:[0-9]{1,5})?(/[a-z0-9/._-]{0,20})?", fullmatch=True
    )
)
def test_an_address_without_a_user_has_no_secret(address: str) -> None:
    assert secrets_in(address) == set()
    text = f"see {address}, 'x@y' and {address}: no answer, tell a@b"
    assert redacted(text) == text


def test_messages_have_no_secret_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted/key+of=aws")
    monkeypatch.setenv("VSE_SERVE_TOKEN", "short")  # part of ordinary words
    SecretAddress("http://user:planted%2Dencoded@host")
    text = "short: planted/key+of=aws, planted%2Dencoded, planted-encoded"
    assert redacted(text) == "short: ***, ***, ***"
    assert str(RedactedError(text)) == "short: ***, ***, ***"
    page = "<td>postgresql://u:***@db/x</td><td>models:/x@champion</td>"
    assert redacted(page) == page


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

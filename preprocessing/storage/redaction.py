"""Secrets in addresses and other texts: what is printed, stored or sent to another machine holds `***` instead."""

import json
import logging
import os
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Self
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "***"
ADDRESS_VARIABLE = "MLFLOW_TRACKING_URI"

# Names of variables and keys that hold secrets: MLFLOW_TRACKING_PASSWORD, VSE_SERVE_TOKEN, OPENAI_API_KEY, ...
SECRET_NAME = re.compile(r".*(PASSWORD|PASSWD|SECRET|TOKEN|_PWD|_KEY)", re.IGNORECASE)
# Shorter ones ("test", "admin") are parts of ordinary words.
_SHORTEST = 8
# What comes before a password, which may hold anything but a line's end, quotes and "@" too, and so reaches to the last
# "@" of the line. One slash where a path was made of an address. A number after "http://host:" is a port; one after
# another scheme's too, if neither it nor the path behind it ends in "@"; a blank ends the address.
_END = r"[.:!?]*([\s,;'\"<>)\]}&`|\\]|$)"
_PASSWORD = re.compile(
    rf":(?<!http:)(?<!https:)/{{1,2}}[^\s:/?#@'\"<>]*:(?!\s|\d{{1,5}}([/?#][^\s@]{{0,200}})?({_END}))"
    rf"|\bhttps?:/{{1,2}}[^\s:/?#@'\"<>]*:(?!\s|\d{{1,5}}([/?#]|{_END}))"
)
# The only part before "@" is a token.
_USER = re.compile(r"\bhttps?:/{1,2}(?P<secret>[^\s:/?#@'\"<>]+)(?=@)")
_PARAMETER = re.compile(
    r"[?&][\w.-]{0,64}(password|passwd|pwd|secret|token|signature|sig|credential|key|auth)=(?P<secret>[^&#\s'\"<>]+)",
    re.IGNORECASE,
)
# AccountKey=... of connection strings, "api_key": "..." of JSON, NAME_TOKEN=... of shells, password='...' of libpq.
_NAMED = re.compile(
    r"((?i:password|passwd|account_?key|access_?key|secret_?key|api_?key|session_?token|\bsecret|signature)"
    r"|_KEY|_TOKEN|_SECRET)"
    r"(\s*=\s*|[\"']\s*:\s*)(?P<quote>[\"'])?(?P<secret>(?(quote)(\\.|(?!(?P=quote))[^\n\\])+|[^;&#\s'\"<>,]+))"
)
# X-Api-Key: ... of headers, password: ... of YAML. Ordinary words behind a colon have no digit.
_LISTED = re.compile(
    r"(?i:password|passwd|secret|(access|account|api|auth|session)[_-]?(key|token))\s*:\s*"
    r"(?P<secret>(?=[^\s'\"]*\d)[^\s'\",;<>]{8,})"
)
_HEADER = re.compile(r"((?i:\bauthorization[\"']?\s*[:=]\s*[\"']?(\w+\s+)?)|\bBearer\s+)(?P<secret>[\w.~+/=-]{8,})")

Span = tuple[int, int]

_addresses: dict[str, str] = {}  # as it is printed -> as it was given
_secrets: set[str] = set()


def redacted(text: str) -> str:
    """Return a text with `***` in place of passwords and tokens in addresses, and of secrets that are known."""
    variables = (value for name, value in os.environ.items() if SECRET_NAME.fullmatch(name))
    known = _secrets.union(variables, secrets_in(os.environ.get(ADDRESS_VARIABLE, "")))
    spans = [*_spans_in_address(text), *_matches(text, _NAMED, _LISTED, _HEADER)]
    for spelling in {spelling for secret in known for spelling in _spellings(secret)}:
        spans += [found.span() for found in re.finditer(re.escape(spelling), text)]
    return _hidden(text, spans)


def redacted_values(content: Any) -> Any:
    """Return the contents of a JSON file with every text in them redacted, that of a key such as `api_key` wholly."""
    if isinstance(content, str):
        return redacted(content)
    if isinstance(content, Mapping):
        return {
            name: HIDDEN if isinstance(value, str) and SECRET_NAME.fullmatch(str(name)) else redacted_values(value)
            for name, value in content.items()
        }
    return [redacted_values(value) for value in content] if isinstance(content, list | tuple) else content


@lru_cache(maxsize=1024)
def _spellings(secret: str) -> tuple[str, ...]:
    """Return a secret as it is, and as it stands in an address, in Python and in JSON."""
    if len(secret) < _SHORTEST:
        return ()
    return secret, quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1], json.dumps(secret)[1:-1]


def _spans_in_address(text: str) -> Iterator[Span]:
    yield from _matches(text, _USER, _PARAMETER)
    start = 0
    for line in text.split("\n"):
        last = start + line.rfind("@")
        position = start
        while (found := _PASSWORD.search(text, position, last + 1)) and (begin := found.end()) < last:
            position = begin + len(HIDDEN) if text.startswith(f"{HIDDEN}@", begin) else last
            yield begin, position
        start += len(line) + 1


def _matches(text: str, *forms: re.Pattern[str]) -> Iterator[Span]:
    for form in forms:
        yield from (found.span("secret") for found in form.finditer(text))


def _hidden(text: str, spans: Iterable[Span]) -> str:
    parts, end = [], 0
    for start, stop in sorted(spans):
        if start >= end:
            parts += [text[end:start], HIDDEN]
        end = max(end, stop)
    return "".join([*parts, text[end:]])


def secrets_in(address: str) -> set[str]:
    """Return the passwords and tokens in an address as they stand there, and `***` for those that are not known."""
    return {address[start:stop] for start, stop in _spans_in_address(address)}


class RedactedError(Exception):
    """An error whose message quotes addresses and other errors, and has `***` in place of their secrets."""

    def __init__(self, message: str) -> None:
        super().__init__(redacted(message))


class SecretAddress(str):
    """An address whose text has `***` in place of its secret; the secret stays in this process, apart from the object.

    Another process, which the object or a text made of it gets into, takes the address from its environment.
    """

    __slots__ = ()

    def __new__(cls, address: str) -> Self:
        """Keep the secret of an address, and print `***` in its place."""
        printed, secrets = _hidden(address, _spans_in_address(address)), secrets_in(address) - {HIDDEN}
        if secrets:
            _addresses[printed] = address
            _secrets.update(secrets, map(unquote, secrets))
        return super().__new__(cls, printed)

    @property
    def without_user(self) -> str:
        """Return the address without user and secret, as it is opened in a browser."""
        return re.sub(r"://[^/?#]*@", "://", self)

    def reveal(self) -> str:
        """Return the address with its secret; RedactedError if it is known neither here nor in the environment."""
        if HIDDEN not in secrets_in(self):
            return str(self)
        if str(self) not in _addresses and SecretAddress(os.environ.get(ADDRESS_VARIABLE, "")) != self:
            raise RedactedError(
                f"the secret of {self} is not known to this process: set {ADDRESS_VARIABLE} to the complete address, "
                "on every machine of a cluster before `ray start`"
            )
        return _addresses[str(self)]


def give_to_children() -> None:
    """Put the last address with a secret into the environment, which processes started from now on take it from."""
    if _addresses:
        os.environ[ADDRESS_VARIABLE] = list(_addresses.values())[-1]


@cache
def redact_logs() -> None:
    """Redact all that is logged in this process from now on, by any library, tracebacks too."""
    make = logging.getLogRecordFactory()

    def redacted_record(*arguments: Any, **named: Any) -> logging.LogRecord:
        record = make(*arguments, **named)
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # arguments that do not fit: logging says so, with the place
            return record
        if (shown := redacted(message)) != message:
            record.msg, record.args = shown, ()
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = redacted("".join(traceback.format_exception(record.exc_info[1]))).rstrip()
        return record

    logging.setLogRecordFactory(redacted_record)

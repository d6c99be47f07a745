"""Secrets in addresses and other texts: what is printed, stored or sent to another machine holds `***` instead."""

import logging
import os
import re
import traceback
from functools import cache
from typing import Any, Self
from urllib.parse import unquote

HIDDEN = "***"
ADDRESS_VARIABLE = "MLFLOW_TRACKING_URI"

# Ends of names of environment variables: AWS_SECRET_ACCESS_KEY, MLFLOW_TRACKING_PASSWORD, VSE_SERVE_TOKEN, ...
_VARIABLES = ("PASSWORD", "SECRET_ACCESS_KEY", "_TOKEN")
# Shorter ones ("test", "admin") are parts of ordinary words.
_SHORTEST = 8
# One slash where a path was made of an address. SQLAlchemy takes any character but "@" in a password; after "http:" a
# number is a port, and an "@" behind it part of the path.
_DATABASE = re.compile(r"(?<!http)(?<!https)(?P<before>:/{1,2}[^\s:/?#@'\"<>]*:)(?P<secret>[^\s'\"<>]+)(?=@)")
_HTTP = re.compile(r"(?P<before>\bhttps?:/{1,2}[^\s:/?#@'\"<>]*:)(?!\d{1,5}[/?#])(?P<secret>[^\s'\"<>]+)(?=@)")
# The only part before "@" is a token.
_USER = re.compile(r"(?P<before>\bhttps?:/{1,2})(?P<secret>[^\s:/?#@'\"<>]+)(?=@)")
_PARAMETER = re.compile(
    r"(?P<before>[?&][\w.-]*(?:password|passwd|pwd|secret|token|signature|credential|accesskey)=)(?P<secret>[^&#\s'\"<>]+)",
    re.IGNORECASE,
)
_FORMS = (_DATABASE, _HTTP, _USER, _PARAMETER)

_addresses: dict[str, str] = {}  # as it is printed -> as it was given
_secrets: set[str] = set()


def redacted(text: str) -> str:
    """Return a text with `***` in place of passwords and tokens in addresses, and of secrets that are known."""
    known = _secrets.union(value for name, value in os.environ.items() if name.endswith(_VARIABLES))
    for secret in sorted((each for each in known if len(each) >= _SHORTEST), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _without_secrets(text)


def _without_secrets(text: str) -> str:
    for form in _FORMS:
        text = form.sub(rf"\g<before>{HIDDEN}", text)
    return text


def secrets_in(address: str) -> set[str]:
    """Return the passwords and tokens in an address as they stand there, and `***` for those that are not known."""
    return {found["secret"] for form in _FORMS for found in form.finditer(address)}


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
        printed, secrets = _without_secrets(address), secrets_in(address) - {HIDDEN}
        if secrets:
            _addresses[printed] = address
            _secrets.update(secrets, map(unquote, secrets))
        return super().__new__(cls, printed)

    @property
    def without_user(self) -> str:
        """Return the address without user and secret, as it is opened in a browser."""
        return re.sub(r"://[^/?#]*@", "://", self)

    def reveal(self) -> str:
        """Return the address with its secret, to open a connection.

        Raises:
            RedactedError: it is known neither here nor in the environment.
        """
        if HIDDEN not in secrets_in(self):
            return str(self)
        if str(self) not in _addresses and SecretAddress(os.environ.get(ADDRESS_VARIABLE, "")) != self:
            raise RedactedError(
                f"the secret of {self} is not known to this process: set {ADDRESS_VARIABLE} to the whole address, on "
                "every machine of a cluster before `ray start`"
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

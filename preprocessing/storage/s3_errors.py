"""Errors of boto3: which of them are worth another attempt, and what to tell about the others."""

import os

from botocore import exceptions
from botocore.parsers import ResponseParserError
from s3transfer.exceptions import RetriesExceededError, S3DownloadFailedError

from preprocessing.storage.base import ObjectError, StorageError, UnconditionalError

ERRORS = (
    exceptions.BotoCoreError,
    exceptions.ClientError,
    ResponseParserError,
    RetriesExceededError,
    S3DownloadFailedError,
)

# Bytes were changed or lost on their way to the server: the same request may succeed, yet botocore does not repeat it.
_REPEATED = {"BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody"}
# Answers to a conditional write of an object that has changed.
_CHANGED = {"PreconditionFailed", "ConditionalRequestConflict", "412"}
_ARCHIVED = "InvalidObjectState"
_MISSING = {"NoSuchKey", "404", "NotFound"}
_CREDENTIALS = (
    "S3 takes them from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws, or the role of the machine, "
    "and every machine of a cluster needs them"
)
_FORBIDDEN = "these credentials may not do this: ask for the permissions GetObject, PutObject, DeleteObject, ListBucket"
_ADVICE = {
    "NoSuchBucket": "there is no such bucket: create it, or correct the address",
    "InvalidAccessKeyId": f"the server does not know this access key: correct it ({_CREDENTIALS})",
    "SignatureDoesNotMatch": f"the access key or its secret is wrong, or this clock: correct it ({_CREDENTIALS})",
    "ExpiredToken": "the session token has expired: get new credentials and run the same command again, which resumes",
    "InvalidToken": "the session token is not valid: get new credentials, or unset AWS_SESSION_TOKEN",
    "RequestTimeTooSkewed": "the clock of this machine is wrong: set it",
    "AccessDenied": _FORBIDDEN,
    "403": f"{_FORBIDDEN}; or the credentials are wrong or have expired",
    "PermanentRedirect": "the bucket lies in another region: set AWS_REGION to it",
    "301": "the bucket lies in another region: set AWS_REGION to it",
    _ARCHIVED: "it is in an archive: restore it there first",
    "SlowDown": "the server asked us to slow down for longer than we waited: lower the number of actors, or try later",
}
_KINDS: list[tuple[tuple[type[Exception], ...], str]] = [
    (
        (exceptions.NoCredentialsError, exceptions.PartialCredentialsError),
        f"there are no credentials: set them ({_CREDENTIALS})",
    ),
    (
        (exceptions.CredentialRetrievalError, exceptions.ProfileNotFound, exceptions.TokenRetrievalError),
        "the credentials cannot be had ({}): log in again, or correct the profile",
    ),
    ((exceptions.ParamValidationError,), "{}: correct the address"),
    (
        (exceptions.SSLError,),
        "no trusted connection ({}): set AWS_CA_BUNDLE to the server's certificate, or correct the endpoint",
    ),
    ((ResponseParserError,), "what answers there is not S3: correct AWS_ENDPOINT_URL"),
    ((Exception,), "{}: check that the server is there, AWS_ENDPOINT_URL, and the network"),
]


class DamagedError(Exception):
    """The bytes that arrived, or were stored, are not those that were sent: their fault, and what to do if it stays."""

    def __init__(self, fault: str, remedy: str) -> None:
        super().__init__(fault)
        self.remedy = remedy


class ChangedError(Exception):
    """The object has another version than a conditional write asks for."""


def is_transient(error: Exception) -> bool:
    """Return whether what failed may succeed the next time, besides what botocore repeats by itself."""
    # An answer that cannot be parsed was cut short; a failed download met an object that was replaced meanwhile.
    again = DamagedError | ResponseParserError | S3DownloadFailedError
    return isinstance(error, again) or _code(error) in _REPEATED


def translated(error: Exception, what: str, address: str) -> Exception:
    """Return the error to raise for one of boto3 during an action (a verb: "read") at an address."""
    error = error.last_exception if isinstance(error, RetriesExceededError) else error
    code = _code(error)
    if code in _MISSING:
        return FileNotFoundError(f"there is no object {address}")
    if code in _CHANGED:
        return ChangedError()
    is_of_object = code == _ARCHIVED or (isinstance(error, DamagedError) and what == "read")
    failure = UnconditionalError if code == "NotImplemented" else ObjectError if is_of_object else StorageError
    server = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "the configured endpoint"
    return failure(f"cannot {what} {address} (S3 at {server}): {_reason(error, code)}")


def _code(error: Exception) -> str:
    """Return the code of an answer of S3, "" for any other error."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, exceptions.ClientError) else ""


def _reason(error: Exception, code: str) -> str:
    if isinstance(error, DamagedError):
        return f"each time {error}: {error.remedy}"
    if isinstance(error, exceptions.ClientError):
        said = " ".join(str(error.response.get("Error", {}).get("Message", "")).split())[:200]
        advice = _ADVICE.get(code, "try again, or ask who runs the server")
        return f"{code}{f' ({said})' if said else ''}: {advice}"
    return next(text.format(error) for kinds, text in _KINDS if isinstance(error, kinds))

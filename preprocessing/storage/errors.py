"""Errors of a storage, and what to do about each."""

import os

from preprocessing.storage.redaction import RedactedError

# Bytes were changed or lost on their way to the server: the same request may succeed, yet botocore does not repeat it.
_REPEATED = {"BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody"}
# Answers to a conditional write of an object that has changed.
CHANGED = {"PreconditionFailed", "ConditionalRequestConflict", "412"}
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
    "SlowDown": "the server asked us to slow down for longer than we waited: lower the number of actors, or try later",
}


class StorageError(RedactedError):
    """A storage does not do what it is asked for; the message says what, where, and how to fix it."""


class BusyError(Exception):
    """Another process holds a lock; the message says which one."""


class UnconditionalError(StorageError):
    """The server has no conditional writes."""


def is_missing(error: Exception) -> bool:
    """Return whether S3 has answered that there is no such object."""
    return code_of(error) in _MISSING


def is_transient(error: Exception) -> bool:
    """Return whether what failed may succeed the next time, besides what botocore repeats by itself."""
    from botocore.parsers import ResponseParserError
    from s3transfer.exceptions import S3DownloadFailedError

    # An answer that cannot be parsed was cut short; a failed download met an object that was replaced meanwhile.
    return code_of(error) in _REPEATED or isinstance(error, ResponseParserError | S3DownloadFailedError)


def code_of(error: Exception) -> str:
    """Return the code of an answer of S3, "" for any other error."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def explained(error: Exception, what: str, address: str) -> StorageError:
    """Return one message for an error of boto3 during an action (a verb: "read") at an address."""
    return StorageError(f"cannot {what} {address} (S3 at {endpoint()}): {_reason(error)}")


def endpoint() -> str:
    """Return the server's address, for messages."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "the configured endpoint"


def _reason(error: Exception) -> str:
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    code = code_of(error)
    if code:
        said = " ".join(str(error.response.get("Error", {}).get("Message", "")).split())  # type: ignore[attr-defined]
        advice = _ADVICE.get(code, "try again, or ask who runs the server")
        return f"{code}{f' ({said[:200]})' if said else ''}: {advice}"
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return f"there are no credentials: set them ({_CREDENTIALS})"
    if isinstance(
        error, exceptions.CredentialRetrievalError | exceptions.ProfileNotFound | exceptions.TokenRetrievalError
    ):
        return f"the credentials cannot be had ({error}): log in again, or correct the profile"
    if isinstance(error, exceptions.ParamValidationError):
        return f"{error}: correct the address"
    if isinstance(error, exceptions.SSLError):
        return (
            f"no trusted connection ({error}): set AWS_CA_BUNDLE to the server's certificate, or correct the endpoint"
        )
    if isinstance(error, ResponseParserError):
        return "what answers there is not S3: correct AWS_ENDPOINT_URL"
    return f"{error}: check that the server is there, AWS_ENDPOINT_URL, and the network"

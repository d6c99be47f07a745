"""The notification of a retraining's outcome: a command or a webhook of the user's is told."""

import json
import logging
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from preprocessing.storage.redaction import redacted, redacted_values

log = logging.getLogger(__name__)

# For the answer of a webhook, or the end of a command.
_SECONDS = 30.0
_WEBHOOK = re.compile(r"https?://", re.IGNORECASE)


def notify(target: str | Sequence[str], outcome: Mapping[str, Any]) -> None:
    """Tell an outcome to a command, as JSON on stdin and its name in VSE_OUTCOME, or by a POST of the JSON.

    A text that is not an address is a shell's command line. What goes wrong is logged, without arguments and path,
    which may be secrets, and changes nothing.
    """
    body = json.dumps(redacted_values(outcome)).encode()
    what = "the notification by a command"
    try:
        if isinstance(target, str) and _WEBHOOK.match(target):
            what = f"the notification of {target.split('/')[2].rpartition('@')[2]}"
            with urlopen(Request(target, body, {"Content-Type": "application/json"}), timeout=_SECONDS) as answer:
                if answer.url != target:
                    raise URLError("it redirects; give the address that answers itself")
        else:
            variables = os.environ | {"VSE_OUTCOME": str(outcome["outcome"])}
            # Its output joins the log: stdout is for our result.
            options: dict[str, Any] = {"input": body, "env": variables, "stdout": 2, "timeout": _SECONDS, "check": True}
            subprocess.run(target, shell=isinstance(target, str), **options)
    except (OSError, HTTPException, subprocess.SubprocessError, ValueError) as error:
        log.warning("%s failed (%s); the outcome stays %s", what, _reason(error), outcome["outcome"])


def _reason(error: Exception) -> str:
    """Return a reason without the command's arguments and the address, which other texts of these errors quote."""
    if isinstance(error, subprocess.CalledProcessError | HTTPError):
        return f"status {error.returncode if isinstance(error, subprocess.CalledProcessError) else error.code}"
    if isinstance(error, subprocess.TimeoutExpired | TimeoutError):
        return f"no end within {_SECONDS:g} seconds"
    return redacted(str(getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__))

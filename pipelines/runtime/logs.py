"""Logs: a line for each record with time, level, stage, run and host, as text or JSON, in workers of Ray too.

Level and format are environment variables, which workers are given (`log_choices`).
"""

import argparse
import json
import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from preprocessing.plain_text import printable
from preprocessing.storage.redaction import redact_logs

LEVEL, FORMAT = "VSE_LOG_LEVEL", "VSE_LOG_FORMAT"
_STAGE, _RUN = "VSE_LOG_STAGE", "VSE_LOG_RUN"
_LEVELS, _FORMATS = ("debug", "info", "warning", "error"), ("text", "json")
# Other libraries' debug and info records hide ours, and some quote requests with their headers.
_OURS = ("infra", "pipelines", "preprocessing", "vse_core")


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command; without them the environment decides."""
    group = parser.add_argument_group("logs")
    for option, variable, choices, default in (
        ("--log-level", LEVEL, _LEVELS, "warning"),
        ("--log-format", FORMAT, _FORMATS, "text"),
    ):
        help_ = f"{', '.join(choices)} (default: ${variable}, or {default})"
        metavar = variable.rpartition("_")[2]
        group.add_argument(
            option, action=_Choice, help=help_, choices=choices, default=argparse.SUPPRESS, metavar=metavar
        )


class _Choice(argparse.Action):
    def __call__(self, _parser: Any, _namespace: Any, value: str | Sequence[Any] | None, _option: Any = None) -> None:
        os.environ[f"VSE_{self.dest.upper()}"] = str(value)
        configure()


def configure(default: str = "warning") -> None:
    """Write this process's records from the chosen level (ours) or WARNING (others) to stderr, without secrets."""
    redact_logs()
    level = os.environ.get(LEVEL, default).upper()
    level = level if level.lower() in _LEVELS else default.upper()
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.StreamHandler())
        logging.getLogger().handlers[0].setFormatter(_Line())
    logging.getLogger().setLevel("ERROR" if level == "ERROR" else "WARNING")
    for name in _OURS:
        logging.getLogger(name).setLevel(level)


def configure_worker(stage: str, run: str, default: str = "warning") -> None:
    """Do the same in a worker of Ray, whose own handlers write to its log files and the driver's terminal."""
    os.environ |= {_STAGE: stage, _RUN: run}
    configure(default)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Line())


def is_json() -> bool:
    """Return whether stderr is for a program: no progress bars, and errors are records."""
    return os.environ.get(FORMAT) == "json"


def log_choices() -> dict[str, str]:
    """Return the variables that workers are given."""
    return {name: os.environ[name] for name in (LEVEL, FORMAT) if name in os.environ}


@contextmanager
def about(stage: str, run: str) -> Iterator[None]:
    """Name the stage, and its run in MLflow, in all records of a ``with`` statement."""
    before = {name: os.environ.get(name, "") for name in (_STAGE, _RUN)}
    os.environ |= {_STAGE: stage, _RUN: run}
    try:
        yield
    finally:
        os.environ |= before


class _Line(logging.Formatter):
    """A record on a line; `fields` of a record (`extra={"fields": {...}}`) are keys of their own in JSON."""

    def format(self, record: logging.LogRecord) -> str:
        message = printable(super().format(record))
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        stage, run, host = os.environ.get(_STAGE, ""), os.environ.get(_RUN, ""), socket.gethostname()
        if not is_json():
            return f"{at} {record.levelname} {stage or '-'} {run[:8] or '-'} {host} {record.name}: {message}"
        named = {"time": at, "level": record.levelname, "stage": stage, "run": run, "host": host, "logger": record.name}
        return json.dumps({**named, **getattr(record, "fields", {}), "message": message})

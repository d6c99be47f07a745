"""The command line that the verbs share: `--config`, `--set`, `--dry-run`, and how errors reach the user."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from pipelines.config import ConfigError, PipelineConfig
from pipelines.runtime.cluster import ClusterError
from pipelines.runtime.stage import OF_THE_DISK, StageError
from pipelines.tracking import TrackingError
from preprocessing.datasets import DatasetError
from preprocessing.shards import ShardError
from preprocessing.storage import StorageError

# Errors whose message says all the user needs. Anything else is a fault of the program and shows its traceback.
_EXPECTED = (ConfigError, ClusterError, StageError, TrackingError, DatasetError, ShardError, StorageError)
_INTERRUPTED = 130


@dataclass(frozen=True)
class Repair:
    """Something that may be done to the output of a stage before it is brought up to date.

    Attributes:
        option: of the command line: "verify" is ``--verify``.
        help: for the user.
        run: does it; in a dry run only prints what would be done.
    """

    option: str
    help: str
    run: Callable[[PipelineConfig, bool], None]


class CommandParser(argparse.ArgumentParser):
    """Ends with status 1 and one message where the command line is wrong, as for every other mistake of the user's."""

    def error(self, message: str) -> NoReturn:
        """Exit with 1, the message and the usage."""
        self.exit(1, f"error: {message}\n{self.format_usage()}")


def make_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every verb has."""
    parser = config_parser(description)
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")
    return parser


def config_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that name a configuration."""
    parser = CommandParser(description=description)
    add_config_options(parser)
    return parser


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a configuration."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file (default: generated scenes)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key: training.epochs=5 (repeatable)"
    )


def guarded(command: Callable[[], None]) -> int:
    """Run a command; return its exit status, with one message on stderr for what the user can mend.

    An end by SIGTERM, as `ray job stop` sends it, is treated as an interrupt from the keyboard: runs are ended as
    KILLED, and the next start goes on.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        command()
    except _EXPECTED as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except OSError as error:
        if error.errno not in OF_THE_DISK:
            raise
        sys.stderr.write(f"error: {error}: make room there, or mend it, and run the same command again\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: run the same command again to go on\n")
        return _INTERRUPTED
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt

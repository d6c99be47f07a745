"""The command line that the scripts share: `--config`, `--set`, `--dry-run`, messages for errors, and tables."""

import argparse
import difflib
import io
import logging
import math
import os
import re
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TextIO, TypeVar

from rich.console import Console
from rich.text import Text

from pipelines.runtime.commands import Caller
from pipelines.runtime.errors import has_message, in_one_line, keep_details, missing_package, resource_message
from pipelines.runtime.lock import when_free
from pipelines.runtime.logs import add_log_options, configure, is_json
from pipelines.schema.error import ConfigError
from preprocessing.plain_text import printable
from preprocessing.storage.base import BusyError
from preprocessing.storage.redaction import redacted

log = logging.getLogger(__name__)

_INTERRUPTED = 130
# EX_TEMPFAIL of sysexits.h: another process is at this work, try again later.
_BUSY = 75
_WAIT = "--wait"
# EX_SOFTWARE of sysexits.h.
_INTERNAL = 70
# What a shell reports of a program that SIGPIPE has ended: the reader of its output, such as `head`, is gone.
_BROKEN_PIPE = 128 + signal.SIGPIPE
# Width of tables in a log, for want of a terminal to ask.
_LOG_COLUMNS = 180
_SCRIPT = re.compile(r"python (?:pipelines/|-m infra\.)(\w+)(?:\.py)?")
_CONFIG = Path(__file__).resolve().parents[1] / "config"

Number = TypeVar("Number", int, float)


class CommandParser(argparse.ArgumentParser):
    """A parser that exits with status 1 and one message for a wrong command line, as scripts do for any user error.

    It has the name that the command was called by, and its help begins with the docstring of the command's script.
    """

    def __init__(self, logs: bool = True, **options: Any) -> None:
        text = sys.modules["__main__"].__doc__ or ""
        defaults: dict[str, Any] = {
            "description": _SCRIPT.sub(r"vse \1", text) if Caller.is_vse else text,
            "formatter_class": argparse.RawDescriptionHelpFormatter,
        }
        name = {"prog": f"vse {Caller.verb}".strip()} if Caller.is_vse else {}
        super().__init__(**defaults | options | name)
        if logs:
            add_log_options(self)

    def error(self, message: str) -> NoReturn:
        """Exit with 1, the message and the usage."""
        self.exit(1, printable(redacted(f"error: {message}\n{self.format_usage()}")))


def number_in(kind: type[Number], least: float, most: float = math.inf) -> Callable[[str], Number]:
    """Return the `type=` of an option: a finite number from `least` to `most`."""
    bounds = f"{least:g} to {most:g}" if most < math.inf else f"at least {least:g}"

    def read(text: str) -> Number:
        """Return the number that a text says."""
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most or not value < math.inf:
            what = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"must be {what}, {bounds}; got {text[:40]!r}")
        return value

    return read


def make_parser() -> argparse.ArgumentParser:
    """Return a parser with the options of every script that does work."""
    parser = config_parser()
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")
    parser.add_argument(
        _WAIT, action="store_true", help="wait for another process at this work to end, instead of exiting with 75"
    )
    return parser


def config_parser() -> argparse.ArgumentParser:
    """Return a parser with the options that name a configuration."""
    parser = CommandParser()
    add_config_options(parser)
    return parser


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a configuration."""
    help_ = "YAML file, or one that comes with the package (default: scenes)"
    parser.add_argument("--config", type=file_or_packaged("data"), metavar="FILE", help=help_)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a key: training.epochs=5 (repeatable)"
    )


def packaged(folder: str) -> dict[str, Path]:
    """Return the files by name that come with the package in a folder: data, presets, searches."""
    return {path.stem: path for path in sorted((_CONFIG / folder).glob("[!_]*.yaml"))}


def file_or_packaged(folder: str) -> Callable[[str], Path]:
    """Return the `type=` of an option that takes a file, or the name of one that comes with the package."""

    def read(text: str) -> Path:
        """Return the path of a file or of what the package has by this name."""
        path, there = Path(text), packaged(folder)
        # A folder of data may have the name of its configuration.
        is_there = path.exists() and not (path.is_dir() and text in there)
        if is_there or path.suffix or len(path.parts) > 1:
            return path
        if text not in there:
            close = difflib.get_close_matches(text, there, n=1)
            meant = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(there)}"
            raise argparse.ArgumentTypeError(f"no file {text[:80]!r} here, nor in the package{meant}")
        return there[text]

    return read


def run_command(command: Callable[[], int | None]) -> NoReturn:
    """Run a command as this process, and exit with its status; see `guarded`."""
    sys.exit(guarded(command))


def guarded(command: Callable[[], int | None]) -> int:
    """Run a command and return its exit status, 0 if it returns none; an error becomes one message on stderr.

    The status is 1 if the user can fix the cause, 75 if another process is at this work, 141 if nobody reads the output
    any more, and 70 after an error that nobody foresaw, whose traceback is kept in a file. With `--wait` the
    command is tried again until it is free. SIGTERM, as `ray job stop` sends it, is treated as an interrupt from the
    keyboard: runs are ended as KILLED, and the next start resumes.
    """
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal whose encoding lacks a sign shows its number
            stream.reconfigure(errors="backslashreplace")
    configure()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _require_directory()
        try:
            status = (when_free(command) if _WAIT in sys.argv else command()) or 0
        except SystemExit as ending:  # of a parser
            status = int(ending.code or 0)
        _flush_stdout()
        return status
    except KeyboardInterrupt:
        status, message = _INTERRUPTED, "interrupted: run the same command again to resume"
    except Exception as error:  # noqa: BLE001 (none may reach the user as a traceback)
        status, message = _ending(error)
    if message and is_json():
        log.error(message)
    elif message:
        sys.stderr.write(f"{printable(redacted(message))}\n")
    return status


def _ending(error: Exception) -> tuple[int, str]:
    if isinstance(error, BrokenPipeError) and (_is_abandoned(sys.stdout) | _is_abandoned(sys.stderr)):
        return _BROKEN_PIPE, ""
    if isinstance(error, BusyError):
        return _BUSY, f"error: {error}: give {_WAIT} to wait for it, or end that process"
    if has_message(error):
        return 1, f"error: {error}"
    if (message := missing_package(error) or resource_message(error)) is not None:
        return 1, f"error: {message}"
    return _INTERNAL, f"internal error ({in_one_line(error)}): please report it; {keep_details(error)}"


def _flush_stdout() -> None:
    """Write what stdout still holds; raises ConfigError if the disk that it goes to is full."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop(sys.stdout)
        raise ConfigError(f"stdout cannot be written to: {error.strerror}; make room where it goes") from None


def _open_streams() -> None:
    """Open /dev/null in place of closed stdin, stdout and stderr (`>&-`): the next files would get their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _is_abandoned(stream: TextIO) -> bool:
    """Return whether the reader of a stream is gone (`| head -1`); what the stream still holds is dropped then."""
    try:
        pipe = select.poll()
        pipe.register(stream, select.POLLOUT)
        is_gone = any(event & select.POLLERR for _, event in pipe.poll(0))
    except (OSError, ValueError):  # it has no file descriptor
        return False
    if is_gone:
        _drop(stream)
    return is_gone


def _drop(stream: TextIO) -> None:
    """Drop what a stream still holds, which Python would write again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _require_directory() -> None:
    """Raise ConfigError in a current directory that was deleted, in which no path can be made absolute."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise ConfigError("the current directory is deleted: change to another one") from None


def say(text: str) -> None:
    """Write a line, or several, to stdout at once, without secrets and with control characters written out."""
    sys.stdout.write(f"{printable(redacted(text))}\n")
    _flush_stdout()


def console(stderr: bool = False) -> Console:
    """Return the console that tables are printed on."""
    # Paths may hold brackets and colons, which are not meant as markup and emojis.
    width = None if sys.stdout.isatty() else _LOG_COLUMNS
    return _PrintableConsole(width=width, markup=False, emoji=False, highlight=False, stderr=stderr)


class _PrintableConsole(Console):
    def on_broken_pipe(self) -> None:
        """Leave the error, which rich handles when it calls this, to `guarded`."""
        raise

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a text without secrets, and with control characters as escapes."""
        return super().render_str(printable(redacted(text)), **options)

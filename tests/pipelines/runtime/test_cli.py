"""The verbs as the user calls them: exit status, and one message instead of a traceback."""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.table import Table

from pipelines.runtime.cli import CommandParser, console, guarded, number_in, say
from pipelines.runtime.stage import StageError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """Keep this process's own handler of SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def call(folder: Path, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "pipelines" / verb), "--set", f"work_dir={folder}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--set", "training.lerning_rate=1"], "did you mean training.learning_rate?"),
        (["--set", "features={extractor: grid, weights: /none}"], "/none"),
        (["--confg", "x"], "unrecognized arguments: --confg"),
    ],
)
def test_a_bad_configuration_ends_with_one_message(tmp_path: Path, arguments: list[str], expected: str) -> None:
    result = call(tmp_path, "full.py", *arguments)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert expected in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "extract" / "train").exists()


def test_what_is_printed_holds_no_control_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])

    def prints() -> None:
        table = Table("caption", title="of \x1b[31mred")
        table.add_row("a dog\x1b]0;owned\x07")
        console().print(table)
        console().print("\x1b[2Jgone")
        console().print("/a/:cat:/8:100:30")
        say("\x9b2J")
        logging.getLogger("vse").warning("image %s", "\x1b[5m")
        raise StageError("caption \x1b[1m")

    assert guarded(prints) == 1
    printed = capsys.readouterr()
    for shown in ("of \\x1b[31mred", "a dog\\x1b]0;owned\\x07", "\\x1b[2Jgone", "\\x9b2J", "/a/:cat:/8:100:30"):
        assert shown in printed.out
    for shown in ("image \\x1b[5m", "caption \\x1b[1m"):
        assert shown in printed.err
    assert all(character.isprintable() or character == "\n" for character in printed.out + printed.err)


def test_how_a_command_ends(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise StageError("what to do")

    def finds_the_disk_full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/data/x.json")

    def is_terminated() -> None:
        signal.raise_signal(signal.SIGTERM)

    def has_a_fault() -> None:
        raise ZeroDivisionError("a\nb")

    assert guarded(lambda: None) == 0
    assert guarded(fails) == 1
    assert capsys.readouterr().err == "error: what to do\n"
    assert guarded(finds_the_disk_full) == 1
    assert "No space left on device: '/data/x.json': make room there" in capsys.readouterr().err
    assert guarded(is_terminated) == 130
    assert "run the same command again" in capsys.readouterr().err
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert guarded(has_a_fault) == 70
    message = capsys.readouterr().err
    (details,) = tmp_path.iterdir()
    assert message == f"internal error (ZeroDivisionError: a b): please report it; details in {details}\n"
    assert "Traceback" in details.read_text()
    assert details.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    assert guarded(has_a_fault) == 70
    assert "please report it; details:" in (message := capsys.readouterr().err)
    assert "ZeroDivisionError: a" in message


SAY = "from pipelines.runtime.cli import run_command, say; run_command(lambda: say('x' * 1000))"


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ('"$0" -c "$1" >&-', 0, ""),
        ('"$0" -c "$1" >&- <&-', 0, ""),
        ('"$0" -c "$1" | true; exit ${PIPESTATUS[0]}', 141, ""),
        ('"$0" -c "$1" >/dev/full', 1, "error: stdout cannot be written to: No space left on device; make room"),
        ('mkdir gone; cd gone; rmdir ../gone; "$0" -c "$1"', 1, "error: the current directory is deleted: change"),
    ],
)
def test_streams_that_are_closed_and_a_directory_that_is_gone(
    line: str, status: int, message: str, tmp_path: Path
) -> None:
    command = ["bash", "-c", line, sys.executable, SAY]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr[: len(message)]) == (status, message)
    assert bool(run.stderr) == bool(message)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1", "0", "2", "1e400", "one", ""])
def test_a_number_out_of_bounds_is_told(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = CommandParser(prog="serve.py")
    parser.add_argument("--share", type=number_in(float, 0.01, 1))
    parser.add_argument("--count", type=number_in(int, 1))
    with pytest.raises(SystemExit) as ended:
        parser.parse_args([f"--share={text}"])
    assert ended.value.code == 1
    assert f"error: argument --share: must be a number, 0.01 to 1; got {text!r}" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parser.parse_args(["--count=1.5"])
    assert "error: argument --count: must be a whole number, at least 1; got '1.5'" in capsys.readouterr().err
    assert parser.parse_args(["--share=0.5", "--count=3"]).share == 0.5


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), "error: memory ran out (MemoryError): lower batch sizes"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "error: memory ran out (RuntimeError: CUDA"),
        (OSError(errno.ENOSPC, "No space left on device"), "error: OSError: [Errno 28] No space left on device"),
        (
            OSError(errno.ENAMETOOLONG, "File name too long", "a" * 5000),
            f"error: File name too long: {'a' * 60}...; use another",
        ),
        (ValueError("I/O error: No space left on device (os error 28)"), "error: ValueError: I/O error: No space left"),
    ],
)
def test_a_machine_that_is_too_small_is_no_internal_error(
    error: Exception, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise error

    assert guarded(fails) == 1
    assert capsys.readouterr().err.startswith(expected)

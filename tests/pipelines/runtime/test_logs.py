"""A line of the log: time, level, stage, run and host, as text or JSON, here and in workers of Ray."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import ray

from pipelines.runtime import cluster, logs
from pipelines.runtime.cli import CommandParser

ROOT = Path(__file__).resolve().parents[3]
RUN = "c1798eea43224126bd674a6b95e9d4b2"
SCRIPT = f"""
import logging, sys
from pipelines.runtime import cli, logs
def command():
    cli.CommandParser(prog="x").parse_args()
    log = logging.getLogger("pipelines.part")
    with logs.about("train", "{RUN}"):
        log.debug("d"); log.info("i"); log.warning("w\\x1b http://me:planted1@host")
        logging.getLogger("botocore").info("theirs")
    log.error("e", extra={{"fields": {{"ms": 2.5}}}})
    raise cli.ConfigError("what to do")
cli.run_command(command)
"""


def lines(*arguments: str, **environment: str) -> list[str]:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("VSE_LOG")}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=clean | {"PYTHONPATH": str(ROOT)} | environment
    ).stderr.splitlines()


def test_a_line_of_text_says_when_where_and_about_what() -> None:
    warning, error, last = lines()
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    host = re.escape(socket.gethostname())
    assert re.fullmatch(
        rf"{time} WARNING train c1798eea {host} pipelines.part: w\\x1b http://me:\*\*\*@host", warning
    ), warning
    assert re.fullmatch(rf"{time} ERROR - - {host} pipelines.part: e", error), error
    assert last == "error: what to do"


@pytest.mark.parametrize("by", ["option", "environment"])
def test_every_line_of_json_is_a_record(by: str) -> None:
    found = (
        lines("--log-format=json", "--log-level=info")
        if by == "option"
        else lines(VSE_LOG_FORMAT="json", VSE_LOG_LEVEL="info")
    )
    info, warning, error, last = map(json.loads, found)
    host = socket.gethostname()
    assert info.pop("time") < warning["time"]
    named = {"level": "INFO", "stage": "train", "run": RUN, "host": host, "logger": "pipelines.part", "message": "i"}
    assert info == named
    assert (error["ms"], error["stage"], error["run"]) == (2.5, "", "")
    assert (last["level"], last["message"]) == ("ERROR", "error: what to do")


def test_a_level_that_is_not_one_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        CommandParser(prog="x").parse_args(["--log-level=loud"])
    assert ended.value.code == 1
    assert "--log-level: invalid choice: 'loud'" in capsys.readouterr().err


@pytest.mark.integration
def test_a_worker_writes_the_same_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    class Worker:
        def write(self) -> str:
            logs.configure_worker("extract", RUN)
            written: list[str] = []
            for handler in logging.getLogger().handlers:
                handler.emit = lambda record, it=handler: written.append(it.format(record))  # type: ignore[method-assign, misc]
            logging.getLogger("preprocessing.part").info("in a worker")
            return written[0]

    monkeypatch.setenv("VSE_LOG_FORMAT", "json")
    monkeypatch.setenv("VSE_LOG_LEVEL", "info")
    environment = cluster._environment()["env_vars"]
    monkeypatch.undo()
    ray.init(num_cpus=1, runtime_env={"env_vars": environment})
    try:
        record = json.loads(ray.get(ray.remote(Worker).remote().write.remote()))
    finally:
        ray.shutdown()
    assert (record["stage"], record["run"], record["message"]) == ("extract", RUN, "in a worker")

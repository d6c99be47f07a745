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


def lines(*arguments: str, **variables: str) -> list[str]:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("VSE_LOG")}
    environment = clean | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment).stderr.splitlines()


def test_a_line_of_text_says_when_where_and_about_what() -> None:
    warning, error, last = lines()
    time, host = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.escape(socket.gethostname())
    about = rf"{time} WARNING train c1798eea {host} pipelines.part: w\\x1b http://me:\*\*\*@host"
    assert re.fullmatch(about, warning), warning
    assert re.fullmatch(rf"{time} ERROR - - {host} pipelines.part: e", error), error
    assert last == "error: what to do"
    assert "--log-level: invalid choice: 'loud'" in lines("--log-level=loud")[0]


@pytest.mark.parametrize("options", [("--log-format=json", "--log-level=info"), ()])
def test_every_line_of_json_is_a_record(options: tuple[str, ...]) -> None:
    found = lines(*options, **({} if options else {"VSE_LOG_FORMAT": "json", "VSE_LOG_LEVEL": "info"}))
    info, warning, error, last = map(json.loads, found)
    assert info.pop("time") <= warning["time"]
    named = {"level": "INFO", "stage": "train", "run": RUN, "host": socket.gethostname()}
    assert info == {**named, "logger": "pipelines.part", "message": "i"}
    assert (error["ms"], error["stage"], last["level"], last["message"]) == (2.5, "", "ERROR", "error: what to do")


@pytest.mark.integration
def test_a_worker_writes_the_same_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    class Worker:
        def write(self) -> str:
            logs.configure_worker("extract", RUN)
            (handler, *_), record = logging.getLogger().handlers, logging.makeLogRecord({"msg": "in a worker"})
            assert logging.getLogger("preprocessing.part").isEnabledFor(logging.INFO)
            return handler.format(record)

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

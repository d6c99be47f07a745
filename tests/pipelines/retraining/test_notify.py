"""Outcomes: their exit status and who is told, as the table of docs/retraining.md says; and notifications that fail."""

from __future__ import annotations

import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from mlflow import MlflowClient

from pipelines.config import PipelineConfig
from pipelines.retraining import notify as module
from pipelines.retraining import retrain
from pipelines.retraining.notify import notify
from pipelines.runtime.cli import guarded
from pipelines.runtime.lock import exclusive
from pipelines.runtime.stage import StageError
from tests.pipelines.retraining.test_retrain import loaded

pytest_plugins = ["tests.pipelines.retraining.test_retrain"]
DOCS = Path(__file__).resolve().parents[3] / "docs" / "retraining.md"


def telling(tmp_path: Path) -> PipelineConfig:
    """A configuration whose command appends what it is told to a file."""
    says = "print(os.environ['VSE_OUTCOME'], json.load(sys.stdin)['outcome'], sep='=', file=open(sys.argv[1], 'a'))"
    command = [sys.executable, "-c", f"import json, os, sys; {says}", str(tmp_path / "told")]
    return loaded(tmp_path, f"retrain.notify={json.dumps(command)}", "retrain.notify_after=2")


def test_the_table_says_what_happens(tmp_path: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit status of each outcome, and whether it is told, are those of the documentation."""
    config = telling(tmp_path)
    trains = retrain._train_and_judge

    def ends(result: str | BaseException) -> tuple[int, list[str]]:
        def end(*arguments: Any) -> dict[str, Any]:
            if isinstance(result, BaseException):
                raise result
            return {**trains(*arguments), "outcome": result}

        monkeypatch.setattr(retrain, "_train_and_judge", end)
        (tmp_path / "told").write_text("")
        return guarded(lambda: print(retrain.retrain(config))), (tmp_path / "told").read_text().splitlines()

    found = {"interrupted": ends(KeyboardInterrupt()), "failed: the message": ends(StageError("collapsed"))}
    found["failed: an internal error"] = ends(RuntimeError("nobody foresaw it"))
    with exclusive(config.mirror, config.work_dir / "retrain" / "shop"):
        found["another retraining"] = ends("refused")
    found["refused"] = ends("refused")
    assert ends("") == (0, [])  # the first start without new data
    found["nothing new"] = ends("")
    (tmp_path / "retrain" / "shop" / "last.json").unlink()
    found["promoted"] = ends("promoted")
    rows = re.findall(r"^\| ([^|]+) \| (\d+) \| (\w+)", DOCS.read_text(), re.MULTILINE)
    assert len(rows) == len(found)
    for text, status, says in rows:
        (name,) = (name for name in found if text.startswith(name))
        outcome = name.partition(":")[0]
        assert found[name] == (int(status), [] if says == "no" else [f"{outcome}={outcome}"]), text


def test_a_failure_before_there_is_a_run_leaves_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> str:
        raise StageError("the table is gone")

    config = telling(tmp_path)
    monkeypatch.setattr(retrain, "identity_of", fail)
    with pytest.raises(StageError, match="the table is gone"):
        retrain.retrain(config)
    client = MlflowClient(config.tracking_uri)
    (run,) = client.search_runs([client.get_experiment_by_name(config.experiment.name).experiment_id])
    assert run.info.status == "FAILED"
    assert run.data.tags["error"] == "StageError: the table is gone"
    assert (tmp_path / "told").read_text() == "failed=failed\n"
    assert "notify" not in config.model_dump_json().replace("notify_after", "")


class Handler(BaseHTTPRequestHandler):
    """A webhook that answers /200 with 200, and so on."""

    posted: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        self.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.do_GET()

    def do_GET(self) -> None:
        self.send_response(int(self.path[1:4]))
        self.send_header("Location", "/200")
        self.end_headers()


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("http://HERE/200/planted", ""),
        ("http://HERE/404/planted", "status 404"),
        ("http://HERE/302/planted", "it redirects"),
        ("http://127.0.0.1:9/planted", "Connection refused"),
        ("http://[::/planted", "ValueError"),
        ("exit 3 # planted", "status 3"),
        (["/no/such/program", "planted"], "No such file or directory"),
        ("exec sleep 60 # planted", "no end within 1 seconds"),
    ],
)
def test_what_cannot_be_told_is_logged_without_secrets(
    target: str | list[str], reason: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SECONDS", 1.0)
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        if "HERE" in target:
            target = str(target).replace("HERE", f"127.0.0.1:{server.server_port}")
        notify(target, {"outcome": "refused", "text": "see http://me:planted1@host"})
        server.shutdown()
    if str(server.server_port) in target:
        assert Handler.posted.pop() == {"outcome": "refused", "text": "see http://me:***@host"}
    assert [(reason in line, "the outcome stays refused" in line) for line in caplog.messages] == [(True,) * 2] * bool(
        reason
    )
    assert "planted" not in caplog.text

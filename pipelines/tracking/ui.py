"""Open MLflow's pages over the runs of this machine, at http://127.0.0.1:5000."""

import os
import sys

from pipelines.retrieval.options import add_tracking_option, default_tracking_uri
from pipelines.runtime.cli import CommandParser, number_in, run_command, say
from pipelines.runtime.commands import command
from pipelines.runtime.stage import StageError
from pipelines.tracking.client import database_of
from pipelines.tracking.mlflow_internals import PAGES, TRAINING_VIEW

_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "PYTHONWARNINGS": "ignore",  # of MLflow about its own libraries
}


def main() -> None:
    """Read the command line, and serve the pages in place of this process until interrupted."""
    parser = CommandParser()
    parser.add_argument("--port", type=number_in(int, 1, 65535), default=5000, help="port to listen at (default 5000)")
    add_tracking_option(parser)
    options = parser.parse_args()
    uri = options.tracking_uri or default_tracking_uri()
    database = database_of(uri)
    if database is None:
        raise StageError(f"MLflow runs at {uri} already: open that address")
    if not database.is_file():
        raise StageError(f"{database} has no runs yet: {command('full')} makes the first")
    say(f"{PAGES.replace('5000', str(options.port))}/#/experiments?{TRAINING_VIEW} in some seconds (end with Ctrl-C)")
    served = {"--port": options.port, "--workers": 1, "--backend-store-uri": uri}
    served["--uvicorn-opts"] = "--log-level=warning"  # not a line for each request
    served["--default-artifact-root"] = database.with_name("mlartifacts")
    words = [str(word) for pair in served.items() for word in pair]
    os.execve(sys.executable, [sys.executable, "-m", "mlflow", "server", *words], {**os.environ, **_QUIET})


if __name__ == "__main__":
    run_command(main)

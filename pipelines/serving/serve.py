"""The command line of the serve command; running.py, which takes seconds to import, does the rest."""

import os

from pipelines.retrieval.options import add_model_options
from pipelines.runtime.cli import CommandParser, number_in
from pipelines.runtime.cluster import keep_memory
from pipelines.runtime.logs import configure
from pipelines.serving.guard import TOKEN_VARIABLE, read_token


def main() -> None:
    """Read the command line, and serve until interrupted."""
    parser = CommandParser(prog="serve.py")
    add_model_options(parser)
    parser.add_argument("--host", default="127.0.0.1", help=f"address to listen at; others need {TOKEN_VARIABLE}")
    parser.add_argument("--port", type=number_in(int, 1, 65535), default=8000, help="port to listen at (default 8000)")
    parser.add_argument("--replicas", type=number_in(int, 1), default=1, help="processes with the model (default 1)")
    parser.add_argument(
        "--max-replicas", type=number_in(int, 1), default=1, help="start up to this number if the load needs them"
    )
    parser.add_argument(
        "--gpus-per-replica", type=number_in(float, 0, 1), default=0, help="share of a GPU for each (default 0)"
    )
    follow = "change to a new champion, or a gallery that was indexed again, while the service runs"
    parser.add_argument("--follow", action="store_true", help=follow)
    options = parser.parse_args()
    configure("info")  # the log of requests
    # Out of the environment, which every process of Ray would inherit.
    token = read_token(options.host, os.environ.pop(TOKEN_VARIABLE, None))
    keep_memory()  # half as many images again a second
    from pipelines.serving.running import run

    run(options, token)

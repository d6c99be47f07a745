"""Serve a model or a gallery: a search page and its interface, in one process, or in several on Ray Serve.

python pipelines/serve.py --model flickr8k
python pipelines/serve.py --gallery holiday
python pipelines/serve.py --model flickr8k --follow                       # changes to new champions while it runs
python pipelines/serve.py --model flickr8k --host 0.0.0.0 --replicas 4    # with VSE_SERVE_TOKEN set

It listens to this machine only, unless a token is set that clients have to carry. /docs describes the interface.
"""

import _repository  # noqa: F401

from pipelines.runtime.cli import run_command
from pipelines.serving.serve import main

if __name__ == "__main__":
    run_command(main)

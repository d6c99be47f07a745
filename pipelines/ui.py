"""Open MLflow's pages over the runs of this machine, at http://127.0.0.1:5000.

python pipelines/ui.py --port 5000
"""

import _repository  # noqa: F401

from pipelines.runtime.cli import run_command
from pipelines.tracking.ui import main

if __name__ == "__main__":
    run_command(main)

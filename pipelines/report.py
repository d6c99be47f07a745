"""Write the report of a pipeline run: one HTML page that opens anywhere, also of an unfinished run.

The main job writes it by itself; this is for an earlier run, or one that has failed:

    python pipelines/report.py --config pipelines/config/data/flickr8k.yaml
"""

import sys

import _repository  # noqa: F401

from pipelines.config import load_config
from pipelines.runtime.cli import config_parser, run_command
from pipelines.stages.runner import report


def main() -> None:
    """Read the command line, and write the report of that configuration's run."""
    options = config_parser().parse_args()
    sys.stdout.write(f"{report(load_config(options.config, options.set))}\n")


if __name__ == "__main__":
    run_command(main)

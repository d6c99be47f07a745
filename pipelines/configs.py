"""List the configurations, presets and searches that come with the package, or print one of them.

python pipelines/configs.py flickr8k > mine.yaml
"""

import _repository  # noqa: F401

from pipelines.config.packaged import main
from pipelines.runtime.cli import run_command

if __name__ == "__main__":
    run_command(main)

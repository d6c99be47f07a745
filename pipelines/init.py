"""Write a configuration for a table of images and captions, and say what was assumed.

python pipelines/init.py photos.csv
"""

import _repository  # noqa: F401

from pipelines.config.first import main
from pipelines.runtime.cli import run_command

if __name__ == "__main__":
    run_command(main)

"""Report images that look alike in different splits of a configuration's data set.

python pipelines/duplicates.py --config pipelines/config/data/flickr8k.yaml --output duplicates.json
"""

import _repository  # noqa: F401

from pipelines.runtime.cli import run_command
from pipelines.stages.duplicates import main

if __name__ == "__main__":
    run_command(main)

"""Report images that look alike in different splits of a configuration's data set.

python pipelines/duplicates.py --config pipelines/config/data/flickr8k.yaml --output duplicates.json
"""

import sys

import _repository  # noqa: F401

from pipelines.runtime.cli import guarded
from pipelines.stages.duplicates import main

if __name__ == "__main__":
    sys.exit(guarded(main))

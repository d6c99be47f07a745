"""Search hyperparameters with Ray Tune around a configuration; ends with a table and the winner as a YAML file.

python pipelines/tune.py --search pipelines/config/searches/margin.yaml --config pipelines/config/data/flickr8k.yaml
"""

import _repository  # noqa: F401

from pipelines.runtime.cli import run_command
from pipelines.tuning.search import main

if __name__ == "__main__":
    run_command(main)

"""Train the configured model on the extracted shards with Ray Train; keeps the best and the newest checkpoint.

python pipelines/train.py --config pipelines/config/data/flickr8k.yaml
"""

import _repository  # noqa: F401

from pipelines.stages.runner import main

if __name__ == "__main__":
    main("train")

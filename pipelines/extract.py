"""Stage 1, extract: every image of the training and evaluation splits through the extractor, into feature shards.

Each split has its own directory, `<work_dir>/extract/<split>/<fingerprint>/`: evaluating on another split never repeats
the work on the training split. A split that has grown gets a new directory, which reuses the shards of the old one
that contain the same records.

python pipelines/extract.py --config pipelines/config/data/flickr8k.yaml

--verify reads all shards first and makes damaged ones again; --retry-failed makes those again that lack images.
"""

import _repository  # noqa: F401

from pipelines.stages.extract.checks import SHARD_CHECKS
from pipelines.stages.runner import main

if __name__ == "__main__":
    main("extract", checks=SHARD_CHECKS)

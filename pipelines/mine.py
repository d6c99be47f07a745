"""Mine hard negatives: for each training image the captions of other images that a model finds nearest to it.

python pipelines/mine.py --config pipelines/config/data/flickr8k.yaml --model flickr8k --output negatives.parquet

The table has the columns image_id, negative and similarity. A configuration with `preset: hard_negatives` names
the table as `loss.table`, to train against it; any table with the first two columns will do.
"""

import sys

import _repository  # noqa: F401

from pipelines.runtime.cli import guarded
from pipelines.stages.mining import main

if __name__ == "__main__":
    sys.exit(guarded(main))

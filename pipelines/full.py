"""The main job, from images and captions to a registered model: extract, train, evaluate, index, register.

python pipelines/full.py --config pipelines/config/data/flickr8k.yaml

It ends with a table of what was done, of which the last row names the report: one HTML page, also kept in MLflow.
"""

import _repository  # noqa: F401

from pipelines.stages.runner import main

if __name__ == "__main__":
    main()

"""The main job, from images and captions to a registered model: extract, train, evaluate, index, register.

python pipelines/full.py --config pipelines/configs/flickr8k.yaml

It ends with a table of what was done, of which the last row names the report: one HTML page, also kept in MLflow.
"""

from pipelines.command import main
from pipelines.runner import STAGES

if __name__ == "__main__":
    main(*STAGES)

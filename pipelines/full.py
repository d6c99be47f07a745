"""The main job, from images and captions to a registered model: extract, train, evaluate, register.

python pipelines/full.py --config pipelines/configs/flickr8k.yaml
"""

from pipelines.command import main
from pipelines.runner import STAGES

if __name__ == "__main__":
    main(*STAGES)

"""Promote the newest registered model to champion where it is better than the champion, or go back to the one before.

python pipelines/promote.py --config pipelines/config/data/flickr8k.yaml
python pipelines/promote.py --config pipelines/config/data/flickr8k.yaml --rollback

Both models are evaluated on the split of the configuration. The challenger takes the champion's place only where its
RSUM is higher by more than chance (the 95 % interval of a paired bootstrap over the images lies above 0) and no metric
of `registry.guards` falls by more than it may. The first model becomes champion without a contest.
"""

import _repository  # noqa: F401

from pipelines.retraining.promotion import main
from pipelines.runtime.cli import run_command

if __name__ == "__main__":
    run_command(main)

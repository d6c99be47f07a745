"""Promote the newest registered model to champion if it is better than the champion, or go back to the one before.

python pipelines/promote.py --config pipelines/config/data/flickr8k.yaml
python pipelines/promote.py --config pipelines/config/data/flickr8k.yaml --rollback
python pipelines/promote.py --config pipelines/config/data/flickr8k.yaml --clear

Both models are evaluated on the split of the configuration. The challenger takes the champion's place only if its
RSUM is higher by more than chance (the 95 % interval of a paired bootstrap over the images lies above 0) and no metric
of `registry.guards` falls by more than it may. The first model becomes champion if the 95 % interval of its RSUM
lies above chance; so does one whose champion cannot be loaded, which is told. A model that cannot be loaded never
becomes champion.
"""

import _repository  # noqa: F401

from pipelines.retraining.promotion import main
from pipelines.runtime.cli import run_command

if __name__ == "__main__":
    run_command(main)

"""Compare two models on the same queries: is one better, by how much, how sure is that, and on which queries?

python pipelines/compare.py --config pipelines/config/data/flickr8k.yaml flickr8k/2 flickr8k/1

Both are evaluated on the split of the configuration if they have not been. A difference of a metric comes with its
95 % interval and the chance to see one as large between equally good models, from a paired bootstrap over the images.
The table of all queries goes to MLflow, those first in which the first model leads most. Models of other
features of the same images name the configuration of these features:

    python pipelines/compare.py --config regions.yaml regions/1 grids/1 --second-config grids.yaml
"""

import _repository  # noqa: F401

from pipelines.evaluation.commands import compare_main
from pipelines.runtime.cli import run_command

if __name__ == "__main__":
    run_command(compare_main)

"""Index the gallery of the evaluated model, so that searches find what is nearest without comparing everything.

python pipelines/index.py --config pipelines/config/data/flickr8k.yaml
"""

import _repository  # noqa: F401

from pipelines.stages.runner import main

if __name__ == "__main__":
    main("index")

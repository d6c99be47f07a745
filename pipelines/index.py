"""Index the gallery of the evaluated model, so that searches find what is nearest without comparing everything.

python pipelines/index.py --config pipelines/config/data/flickr8k.yaml

Or index your own images, which need no captions; the same command again embeds new and changed ones, and removes those
that are gone:

python pipelines/index.py --model flickr8k --images ~/photos --name holiday
python pipelines/index.py --name holiday --delete
"""

import sys

import _repository  # noqa: F401

from pipelines.runtime.cli import run_command
from pipelines.stages.runner import main

if __name__ == "__main__":
    if any(argument.partition("=")[0] in ("--name", "--images") for argument in sys.argv):
        from pipelines.retrieval import index_images

        run_command(index_images.main)
    main("index")

"""Index the gallery of the evaluated model, so that searches find what is nearest without comparing everything.

python pipelines/index.py --config pipelines/config/data/flickr8k.yaml

Or index your own images, which need no captions; the same command again embeds new and changed ones, and removes those
that are gone:

python pipelines/index.py --model flickr8k --images ~/photos --name holiday
python pipelines/index.py --name holiday --delete
"""

import _repository  # noqa: F401

from pipelines.retrieval.index import main
from pipelines.runtime.cli import run_command

if __name__ == "__main__":
    run_command(main)

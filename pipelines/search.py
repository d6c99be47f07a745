"""Search a registered model's gallery: a text finds images, an image finds captions or images.

python pipelines/search.py --model flickr8k "a dog running on the beach" --output results.html
python pipelines/search.py --model flickr8k@challenger --image photo.jpg -k 5
python pipelines/search.py --model flickr8k --queries queries.txt --output results.parquet

The last one searches with every line of a file; a line that is not a query is skipped, and listed next to the results.
"""

import gc

import _repository  # noqa: F401

from pipelines.retrieval.search import main
from pipelines.runtime.cli import run_command

if __name__ == "__main__":
    gc.disable()  # until all is imported: looking for garbage in it would take a third of a search
    run_command(main)

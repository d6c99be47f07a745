"""The figures of the papers, each by one command from a registered model; they go into files and into MLflow.

python pipelines/figures.py gpo-coefficients --config pipelines/config/data/flickr8k.yaml --model flickr8k/1
python pipelines/figures.py convergence --config FILE --model flickr8k_vse_2ad/1 --model flickr8k/4
python pipelines/figures.py kmax-grid --config FILE --search pipelines/config/searches/kmax_grid.yaml
"""

import _repository  # noqa: F401

from pipelines.paper_figures.draw import main
from pipelines.runtime.cli import run_command

if __name__ == "__main__":
    run_command(main)

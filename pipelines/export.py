"""Export a registered model for the hub, sentence-transformers and as ONNX graphs, or a gallery as a Parquet table.

python pipelines/export.py --model flickr8k@champion --output exported
python pipelines/export.py --model flickr8k --output exported --push someone/flickr8k-vse
python pipelines/export.py --gallery holiday --output holiday.parquet

The model is checked in onnxruntime, which needs `pip install 'vse-pipeline[export]'`.
"""

import _repository  # noqa: F401

from pipelines.exports.export import main
from pipelines.runtime.cli import run_command

if __name__ == "__main__":
    run_command(main)

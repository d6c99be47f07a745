"""Export a registered model into a folder: for the Hugging Face hub, for sentence-transformers and as ONNX graphs.

python pipelines/export.py --model flickr8k@champion --output exported
python pipelines/export.py --model flickr8k --output exported --push someone/flickr8k-vse

The model is checked in onnxruntime. Needs `pip install 'vse-pipeline[export]'`.
"""

import _repository  # noqa: F401

from pipelines.exports.export import main
from pipelines.runtime.cli import run_command

if __name__ == "__main__":
    run_command(main)

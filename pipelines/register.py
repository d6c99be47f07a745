"""Register the best checkpoint in MLflow: a model that takes raw texts and image files, with its gallery.

python pipelines/register.py --config pipelines/config/data/flickr8k.yaml
"""

import _repository  # noqa: F401

from pipelines.stages.runner import main

if __name__ == "__main__":
    main("register")

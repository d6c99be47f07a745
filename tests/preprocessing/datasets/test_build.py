"""Imports of the readers."""

import subprocess
import sys


def test_importing_readers_and_extractors_pulls_in_no_heavy_library() -> None:
    code = (
        "import sys, preprocessing.datasets, preprocessing.features\n"
        "assert not {'ray', 'webdataset', 'mlflow', 'spacy', 'torch', 'transformers', 'vse_core'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

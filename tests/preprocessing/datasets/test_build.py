"""The builder of the readers."""

import subprocess
import sys

import pytest

from preprocessing.datasets import DATASET_FORMATS, DatasetError, build_dataset


def test_an_unknown_format_lists_those_there_are() -> None:
    with pytest.raises(DatasetError, match="no dataset format 'flicker'; the formats are flickr, karpathy, coco"):
        build_dataset("flicker")


@pytest.mark.parametrize("format_name", DATASET_FORMATS)
def test_wrong_options_are_told_with_the_right_ones(format_name: str) -> None:
    with pytest.raises(
        DatasetError, match=r"unexpected keyword argument 'folder'|missing a required argument"
    ) as caught:
        build_dataset(format_name, folder="x")
    assert "it takes" in str(caught.value)


def test_importing_readers_and_extractors_pulls_in_no_heavy_library() -> None:
    code = (
        "import sys, preprocessing.datasets, preprocessing.features\n"
        "assert not {'ray', 'webdataset', 'mlflow', 'spacy', 'torch', 'transformers', 'vse_core'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

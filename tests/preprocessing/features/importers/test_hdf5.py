"""HDF5 files, whole and damaged."""

from pathlib import Path

import numpy as np
import pytest

from preprocessing.features.images import ImageError
from preprocessing.features.importers import open_source

h5py = pytest.importorskip("h5py", reason="pip install h5py")

FEATURES = np.arange(6, dtype=np.float32).reshape(2, 3)
BOXES = np.array([[0, 1, 2, 3], [4, 5, 6, 7]], dtype=np.float32)


def test_hdf5_of_frames_and_of_groups(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "features.hdf5", "w") as file:
        file["video7"] = FEATURES
        file["42/features"] = FEATURES.astype(np.float16)
        file["42/boxes"] = BOXES
        file["flat"] = FEATURES[0]
        file["whole"] = np.zeros((2, 2), dtype=np.int32)
        file["words"] = "a text"
        file["other/boxes"] = BOXES
        file["wrong/features"] = FEATURES
        file["wrong/boxes"] = BOXES[:1]
        file.create_dataset("huge", shape=(1 << 20, 2048), dtype="f4")  # takes no space on disk
    source = open_source(tmp_path / "features.hdf5", "hdf5")
    frames, regions = source.read("video7"), source.read("42")
    assert frames.features.tolist() == FEATURES.tolist() == regions.features.tolist()
    assert frames.companions == {}
    assert regions.companions["boxes"].tolist() == BOXES.tolist()
    reasons = {}
    for name, place in source.places():
        if name not in ("video7", "42"):
            with pytest.raises(ImageError) as caught:
                source.read(place)
            reasons[name] = str(caught.value)
    assert reasons == {
        "flat": "features are float32 of shape (3,), floats of shape (N, F) are needed",
        "whole": "features are int32 of shape (2, 2), floats of shape (N, F) are needed",
        "words": "object of shape () is not a set of vectors or boxes",
        "other": "a group of boxes; 'features' is needed",
        "wrong": "boxes are float32 of shape (1, 4), finite numbers (2, 4) are needed",
        "huge": "float32 of shape (1048576, 2048) is not a set of vectors or boxes",
    }

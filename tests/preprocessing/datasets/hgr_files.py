"""Small files in the layout of HGR's release."""

import json
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np

NETWORK = "resnet152.pth"


def write_hgr(
    root: Path, captions: Mapping[str, Mapping[str, list[str]]], frames: Mapping[str, np.ndarray] | None = None
) -> Path:
    """Write a data set of `captions`, by split and video; frames of a video are random where they are not given."""
    rng = np.random.default_rng(0)
    (root / "annotation" / "RET").mkdir(parents=True)
    (root / "public_split").mkdir()
    (root / "ordered_feature" / "SA" / NETWORK).mkdir(parents=True)
    everything = {name: texts for videos in captions.values() for name, texts in videos.items()}
    (root / "annotation" / "RET" / "ref_captions.json").write_text(json.dumps(everything))
    for split, videos in captions.items():
        np.save(root / "public_split" / f"{split}_names.npy", np.array(list(videos)))
        with h5py.File(root / "ordered_feature" / "SA" / NETWORK / f"{split}_ft.hdf5", "w") as file:
            for name in videos:
                array_NF = frames[name] if frames else rng.standard_normal((rng.integers(1, 6), 8))
                file[name.replace("/", "_")] = array_NF.astype(np.float32)
    return root

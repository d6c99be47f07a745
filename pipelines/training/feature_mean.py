"""The mean of the training split's features, around which a model with `model.image.center` sees images."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save

from pipelines.runtime.progress import progress_bar
from preprocessing.shards.reader import ShardReader
from preprocessing.storage.atomic import write_bytes_atomic
from vse_core.models import Model

FILE = "feature_mean.safetensors"


def feature_mean(reader: ShardReader) -> npt.NDArray[np.float64]:
    """Return the mean (F,) of all feature vectors of a split, added up in the order of the images."""
    total_F, count = np.zeros(reader.feature_dim), 0
    with progress_bar("mean of the features", len(reader), "images", delay=5) as bar:
        for image in range(len(reader)):
            array_NF = reader.features(image)
            total_F += array_NF.sum(axis=0, dtype=np.float64)
            count += len(array_NF)
            bar.update()
    return total_F / count


def write_feature_mean(reader: ShardReader, directory: Path) -> None:
    """Write the mean for all processes of a run, once before they start."""
    mean_F = torch.from_numpy(feature_mean(reader)).float()
    write_bytes_atomic(directory / FILE, save({"mean_F": mean_F}))


def start_from_feature_mean(model: Model, directory: Path) -> None:
    """Fill in the mean in a run's directory, if there is one."""
    if (directory / FILE).exists():
        model.get_buffer("image_encoder.center.mean_F").copy_(load_file(directory / FILE)["mean_F"])

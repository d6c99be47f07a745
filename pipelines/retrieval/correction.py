"""What corrects the searches of a model: a bank of its training split, in which hubs are found, and a temperature.

A bundle holds it as `correction`, so that a gallery of any images is corrected as the model's own is, and its hits have
a confidence.

B images, C captions, K views, D embedding, M items of the bank, Q queries of V views.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pipelines.retrieval.gallery import Biases, Gallery, GalleryError
from pipelines.retrieval.options import Kind, Target
from preprocessing.reading import damage_as, parse_json
from vse_core.digests import check_digests, write_digests
from vse_core.evaluation.calibration import Calibration, calibrate
from vse_core.evaluation.hubs import hub_bias
from vse_core.evaluation.nearest import top_k
from vse_core.similarity import similarity_matrix

BANK, SETTINGS = "bank.safetensors", "correction.json"
# Fewer typical queries than this make searches worse.
FEWEST = 1_000
# Most images and captions of a bank: more of them change little.
MOST = 10_000
# The share of texts and images of the development split that count as unlike the training captions.
_UNFAMILIAR = 0.05
# Queries whose similarities with the bank are in memory at a time.
_QUERIES = 1024
# Similarities that a calibration takes at most; 80 MB.
_CALIBRATION_ELEMENTS = 20_000_000


@dataclass(frozen=True)
class Correction:
    """Unit vectors of a sample of training images (M, K, D) and captions (M, D), and the temperature of the softmax.

    `source` says where the temperature comes from. `calibrations` are of the hits, by their kind. `familiar` is the
    similarity with the nearest caption of the bank that 95 % of texts, and of images, exceed.
    """

    images_MKD: Tensor
    texts_MD: Tensor
    temperature: float
    source: str
    calibrations: Mapping[Target, Calibration] = field(default_factory=dict)
    familiar: Mapping[Kind, float] = field(default_factory=dict)

    def images_bias(self, images_BKD: Tensor) -> Tensor:
        """Return what hub correction subtracts from the similarities of images (B,)."""
        return hub_bias(images_BKD, self.texts_MD.unsqueeze(1), self.temperature)

    def __str__(self) -> str:
        bank = f"{len(self.images_MKD):,} images and {len(self.texts_MD):,} captions of training"
        return f"temperature {self.temperature:.3g}, {self.source}; {bank}"

    def of_gallery(self, gallery: Gallery) -> Gallery:
        """Return a gallery with its biases."""
        return replace(gallery, biases=self.biases(gallery.images_BKD, gallery.texts_CD))

    def texts_bias(self, texts_C1D: Tensor) -> Tensor:
        """Return what hub correction subtracts from the similarities of captions (C,)."""
        return hub_bias(texts_C1D, self.images_MKD, self.temperature)

    def biases(self, images_BKD: Tensor, texts_CD: Tensor) -> Biases:
        """Return what hub correction subtracts from the similarities of images and of captions."""
        return Biases(self.images_bias(images_BKD), self.texts_bias(texts_CD.unsqueeze(1)))

    def calibrated(self, gallery: Gallery) -> Self:
        """Return the correction with what makes confidences right in a gallery with captions, and what is familiar."""
        images_BKD, texts_CD, biases = gallery.images_BKD, gallery.texts_CD, gallery.biases
        assert biases is not None
        image_of_C = torch.tensor([image for image, _ in gallery.captions])
        image_of_B = torch.arange(len(images_BKD))
        of_captions, of_images = _some(len(texts_CD), len(images_BKD)), _some(len(images_BKD), len(texts_CD))
        to_images_QB = similarity_matrix(images_BKD, texts_CD[of_captions]).T - biases.images_B
        to_captions_QC = similarity_matrix(images_BKD[of_images], texts_CD) - biases.texts_C

        def of_hits(scores_QN: Tensor, owner_Q: Tensor, owner_N: Tensor, target: Target) -> Calibration:
            relevant = relevant_items(gallery, target)
            return calibrate(scores_QN, owner_Q.unsqueeze(1) == owner_N, owner_Q, relevant)

        calibrations: dict[Target, Calibration] = {
            "images": of_hits(to_images_QB, image_of_C[of_captions], image_of_B, "images"),
            "captions": of_hits(to_captions_QC, image_of_B[of_images], image_of_C, "captions"),
        }
        familiar: dict[Kind, float] = {
            "text": float(self.nearest_caption(texts_CD.unsqueeze(1)).quantile(_UNFAMILIAR)),
            "image": float(self.nearest_caption(images_BKD).quantile(_UNFAMILIAR)),
        }
        return replace(self, calibrations=calibrations, familiar=familiar)

    def nearest_caption(self, queries_QVD: Tensor) -> Tensor:
        """Return the similarity of each query with the nearest caption of the bank (Q,)."""
        texts_M1D = self.texts_MD.unsqueeze(1)
        return torch.cat([top_k(queries_qVD, texts_M1D, 1)[0][:, 0] for queries_qVD in queries_QVD.split(_QUERIES)])

    def save(self, directory: Path) -> None:
        """Write `bank.safetensors`, in float16, and `correction.json`, with their digests."""
        directory.mkdir(parents=True, exist_ok=True)
        bank = {"images_MKD": self.images_MKD, "texts_MD": self.texts_MD}
        save_file({name: tensor.half().contiguous() for name, tensor in bank.items()}, directory / BANK)
        settings = {"temperature": self.temperature, "source": self.source, "familiar": dict(self.familiar)}
        settings["calibrations"] = {target: each._asdict() for target, each in self.calibrations.items()}
        (directory / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        write_digests(directory, BANK, SETTINGS)

    @classmethod
    def load(cls, directory: Path) -> Self | None:
        """Read a correction that `save` has written; None if the model has none. DigestError if a file was changed."""
        if not directory.is_dir():
            return None
        check_digests(directory, BANK, SETTINGS)
        with damage_as(GalleryError, f"the correction in {directory} is damaged", "evaluate the model again"):
            bank = load_file(directory / BANK)
            settings = parse_json((directory / SETTINGS).read_bytes())
            read = settings["calibrations"].items()
            settings["calibrations"] = {target: Calibration(**calibration) for target, calibration in read}
            return cls(bank["images_MKD"].float(), bank["texts_MD"].float(), **settings)


def relevant_items(gallery: Gallery, target: Target) -> float:
    """Return how many items of a gallery a query of the other kind is about: an image, or its captions on average."""
    return 1.0 if target == "images" else len(gallery.captions) / len(gallery.records)


def _some(queries: int, items: int) -> slice:
    """Return all queries, or evenly spread ones whose similarities with all items fit into memory."""
    return slice(None, None, -(-queries * items // _CALIBRATION_ELEMENTS))

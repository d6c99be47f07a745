"""What corrects the searches of a model: a bank of its training split, in which hubs are found, and a temperature.

A bundle holds it as `correction`, so that a gallery of any images is corrected as the model's own is.

B images, C captions, K views, D embedding, M items of the bank.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from safetensors.torch import load_file, save_file
from torch import Tensor

from pipelines.retrieval.gallery import Biases, Gallery, GalleryError
from preprocessing.reading import damage_as, parse_json
from vse_core.digests import check_digests, write_digests
from vse_core.evaluation.hubs import hub_bias

BANK, SETTINGS = "bank.safetensors", "correction.json"
# Fewer typical queries than this make searches worse.
FEWEST = 1_000
# Most images and captions of a bank: more of them change little.
MOST = 10_000


@dataclass(frozen=True)
class Correction:
    """Unit vectors of a sample of training images (M, K, D) and captions (M, D), and the temperature of the softmax.

    `source` says where the temperature comes from.
    """

    images_MKD: Tensor
    texts_MD: Tensor
    temperature: float
    source: str

    def images_bias(self, images_BKD: Tensor) -> Tensor:
        """Return what hub correction subtracts from the similarities of images (B,)."""
        return hub_bias(images_BKD, self.texts_MD.unsqueeze(1), self.temperature)

    def __str__(self) -> str:
        bank = f"{len(self.images_MKD):,} images and {len(self.texts_MD):,} captions of training"
        return f"temperature {self.temperature:.3g}, {self.source}; {bank}"

    def of_gallery(self, gallery: Gallery) -> Gallery:
        """Return a gallery with its biases."""
        return replace(gallery, biases=self.biases(gallery.images_BKD, gallery.texts_CD))

    def biases(self, images_BKD: Tensor, texts_CD: Tensor) -> Biases:
        """Return what hub correction subtracts from the similarities of images and of captions."""
        texts_bias_C = hub_bias(texts_CD.unsqueeze(1), self.images_MKD, self.temperature)
        return Biases(self.images_bias(images_BKD), texts_bias_C)

    def save(self, directory: Path) -> None:
        """Write `bank.safetensors`, in float16, and `correction.json`, with their digests."""
        directory.mkdir(parents=True, exist_ok=True)
        bank = {"images_MKD": self.images_MKD, "texts_MD": self.texts_MD}
        save_file({name: tensor.half().contiguous() for name, tensor in bank.items()}, directory / BANK)
        settings = {"temperature": self.temperature, "source": self.source}
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
            return cls(bank["images_MKD"].float(), bank["texts_MD"].float(), **settings)

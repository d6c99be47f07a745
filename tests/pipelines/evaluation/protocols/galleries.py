"""Galleries of made-up embeddings, for the protocols that need nothing else."""

from collections.abc import Sequence

import torch

from pipelines.retrieval.gallery import Gallery
from preprocessing.datasets import Caption, Record


def records_of(captions: Sequence[Sequence[str]]) -> tuple[Record, ...]:
    """Records of these captions; image ids and caption ids are running numbers."""
    number = iter(range(10**6))
    return tuple(
        Record(str(image), f"/{image}.jpg", "test", tuple(Caption(str(next(number)), text) for text in texts))
        for image, texts in enumerate(captions)
    )


def coarse_gallery(records: tuple[Record, ...], views: int, dim: int, seed: int) -> Gallery:
    """Small integers, whose similarities tie often and exactly; equal texts have equal embeddings."""
    generator = torch.Generator().manual_seed(seed)
    texts = [caption.text for record in records for caption in record.captions]
    of_text = {text: torch.randint(-2, 3, (dim,), generator=generator).float() for text in dict.fromkeys(texts)}
    images = torch.randint(-2, 3, (len(records), views, dim), generator=generator).float()
    return Gallery(images, torch.stack([of_text[text] for text in texts]), records)


def scores(galleries: Sequence[Gallery], image: int, caption: int) -> float:
    """The mean over the models of the best view, in plain Python."""
    each = [
        max(
            sum(float(a) * float(b) for a, b in zip(view, gallery.texts_CD[caption], strict=True))
            for view in gallery.images_BKD[image]
        )
        for gallery in galleries
    ]
    return sum(each) / len(each)


def best_rank(similarity: dict[int, float], true: set[int]) -> int:
    """0-based place of the best true item; of equals the later one comes first."""
    order = sorted(similarity, key=lambda item: (-similarity[item], -item))
    return next(place for place, item in enumerate(order) if item in true)

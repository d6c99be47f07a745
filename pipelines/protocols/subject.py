"""What the protocols evaluate that read captions: a model and a split with its parsed captions.

B images, C captions, K views, D embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from pipelines.text_embedder import TextEmbedder
from preprocessing.captions.adversarial import Lexicon, TokenizedCaption
from preprocessing.captions.pools import Pools
from preprocessing.captions.relatedness import Relatedness
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.parsing import read_captions
from vse_core.models import UnifiedModel

if TYPE_CHECKING:
    from pipelines.gallery import Gallery
    from preprocessing.shards.reader import ShardReader

_PHRASES_AT_ONCE = 4096

Item = TypeVar("Item")


@dataclass(frozen=True)
class Subject:
    """A model and an embedded split with its parsed captions.

    Attributes:
        texts: the model with what its text side needs.
        gallery: the split's images and captions, embedded.
        reader: the split's features.
        train_graphs: directory of the training captions' graphs, which say what words there are.
        graphs: directory of the split's graphs.
        directory: where files go.
        detections: for each image the names of the objects that a data set labels in it; None where there are none.
    """

    texts: TextEmbedder
    gallery: Gallery
    reader: ShardReader
    train_graphs: Path
    graphs: Path
    directory: Path
    detections: Sequence[Sequence[str]] | None

    @cached_property
    def captions(self) -> list[list[TokenizedCaption]]:
        """The split's parsed captions, image by image."""
        return list(read_captions(self.graphs))

    @cached_property
    def lexicon(self) -> Lexicon:
        """The words of the training captions, and which of them are related."""
        images = list(read_captions(self.train_graphs))
        graphs = [[caption.graph for caption in captions] for captions in images]
        pools = Pools.build(graph for of_image in graphs for graph in of_image)
        return Lexicon((caption for captions in images for caption in captions), pools, Relatedness.build(graphs))

    def embed_phrases(self, phrases: Sequence[tuple[str, ...]]) -> Tensor:
        """Embed components: nouns, attributes with their nouns, subjects with relations and objects.

        UniVSE embeds them as what they are. Any other model reads them as a short text: "white dog", "dog run through
        snow".

        Returns:
            (phrases, D) unit vectors.
        """
        model = self.texts.model
        if not isinstance(model, UnifiedModel):
            return self.texts.embed([" ".join(phrase).replace("_", " ") for phrase in phrases])
        vocabulary = self.texts.caption_encoder
        assert isinstance(vocabulary, Vocabulary)
        encode: dict[int, Callable[..., Tensor]] = {
            1: model.encode_objects,
            2: model.encode_pairs,
            3: model.encode_triples,
        }
        device = next(model.parameters()).device
        vectors: dict[int, Tensor] = {}
        for length in {len(phrase) for phrase in phrases}:
            rows = [row for row, phrase in enumerate(phrases) if len(phrase) == length]
            ids = torch.tensor([[_known(vocabulary, word) for word in phrases[row]] for row in rows])
            with torch.inference_mode():
                parts = [encode[length](*part.to(device).unbind(1)).cpu() for part in ids.split(_PHRASES_AT_ONCE)]
            vectors |= zip(rows, torch.cat(parts), strict=True)
        return torch.stack([vectors[row] for row in range(len(phrases))])


def _known(vocabulary: Vocabulary, word: str) -> int:
    found = vocabulary.find(word)
    return Vocabulary.UNK if found is None else found


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """So many of the items, evenly spread."""
    return [items[place * len(items) // count] for place in range(min(count, len(items)))]

"""From raw captions to vectors: tokens, and for UniVSE the components that its parser finds in them.

C captions, D embedding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pipelines.inference.text_inputs import text_batches
from pipelines.runtime.progress import counted
from preprocessing.captions.components import ComponentTable, nouns_of, pairs_of, triples_of
from preprocessing.captions.encoder import load_caption_encoder
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.loading.batch import pad_tokens
from preprocessing.storage.atomic import write_json_atomic
from vse_core.evaluation.embedding import embed_halves, embed_texts
from vse_core.models import Model, UnifiedModel

if TYPE_CHECKING:
    from spacy.language import Language

    from preprocessing.captions.graph import SceneGraph

PARSER = "parser.json"

_TEXTS_AT_ONCE = 256
_PHRASES_AT_ONCE = 4096

Phrase = tuple[str, ...]


class TextEmbedder:
    """Embeds captions with a model as it was saved.

    Args:
        model: in evaluation mode.
        directory: where it was saved, with its caption encoder, and for UniVSE the name of its parser.

    Raises:
        FileNotFoundError: the directory lacks one of them.
        ValueError: a file cannot be read.
    """

    def __init__(self, model: Model, directory: Path) -> None:
        self.model = model
        self.caption_encoder = load_caption_encoder(directory)
        self._pipeline = _read_parser(directory) if isinstance(model, UnifiedModel) else None

    def embed(self, texts: Sequence[str], title: str | None = None) -> Tensor:
        """Embed texts into (C, D) unit vectors, float32, on the CPU.

        Args:
            texts: C of them.
            title: of a progress bar; without it there is none.
        """
        texts_CD: Tensor = embed_texts(self.model, self._batches(texts, title))
        return texts_CD

    def embed_halves(self, texts: Sequence[str], title: str | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """What UniVSE makes a caption of: sentences (C, D), components (C, D), and which captions have any (C,).

        The model's ``alpha`` plays no part.
        """
        assert isinstance(self.model, UnifiedModel)
        return embed_halves(self.model, self._batches(texts, title))

    def components(self, texts: Sequence[str]) -> ComponentTable:
        """Parse texts; components with words that the model does not know are left out."""
        from preprocessing.captions.scene_graph import parse_captions

        assert isinstance(self.caption_encoder, Vocabulary)
        graphs: list[list[SceneGraph]] = [
            [parsed.graph] for parsed in parse_captions(self._parser, texts, _TEXTS_AT_ONCE)
        ]
        return ComponentTable.build(graphs, self.caption_encoder)

    def phrases(self, text: str) -> list[Phrase]:
        """The objects, attributes and relations of a text, of words that UniVSE's vocabulary has.

        A noun alone, an adjective with its noun, a subject with its relation and its object.
        """
        from preprocessing.captions.scene_graph import parse_captions

        assert isinstance(self.caption_encoder, Vocabulary)
        (parsed,) = parse_captions(self._parser, [text], 1)
        found: list[Phrase] = [(noun,) for noun in nouns_of(parsed.graph)]
        found += [*pairs_of(parsed.graph), *triples_of(parsed.graph)]
        find = self.caption_encoder.find
        return [phrase for phrase in found if all(find(word) is not None for word in phrase)]

    def embed_phrases(self, phrases: Sequence[Phrase]) -> Tensor:
        """Embed components: nouns, attributes with their nouns, subjects with relations and objects.

        UniVSE embeds them as what they are. Any other model reads them as a short text: "white dog", "dog run through
        snow".

        Returns:
            (phrases, D) unit vectors.
        """
        model = self.model
        if not isinstance(model, UnifiedModel):
            return self.embed([" ".join(phrase).replace("_", " ") for phrase in phrases])
        vocabulary = self.caption_encoder
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

    @cached_property
    def _parser(self) -> Language:
        from preprocessing.captions import load_pipeline

        return load_pipeline(self._pipeline)

    def _batches(self, texts: Sequence[str], title: str | None) -> Iterator[tuple[Any, ...]]:
        """Texts as the model takes them, in order, with a progress bar of this title."""
        starts = range(0, len(texts), _TEXTS_AT_ONCE)
        batches = (self._batch(texts[start : start + _TEXTS_AT_ONCE]) for start in starts)
        return batches if title is None else counted(batches, title, len(texts), "captions")

    def _batch(self, texts: Sequence[str]) -> tuple[Any, ...]:
        encoded = [np.array(self.caption_encoder.encode(text), dtype=np.int64) for text in texts]
        table = self.components(texts) if isinstance(self.model, UnifiedModel) else None
        (batch,) = text_batches([pad_tokens(encoded, self.caption_encoder.pad_id)], table)
        return batch


def _known(vocabulary: Vocabulary, word: str) -> int:
    found = vocabulary.find(word)
    return Vocabulary.UNK if found is None else found


def write_parser(directory: Path, pipeline: str | None) -> None:
    """Note beside a model which parser its captions went through; None is the one that ships."""
    write_json_atomic(directory / PARSER, {"pipeline": pipeline})


def _read_parser(directory: Path) -> str | None:
    path = directory / PARSER
    if not path.is_file():
        raise FileNotFoundError(f"{directory} does not say which parser its model reads captions with: no {PARSER}")
    content = json.loads(path.read_text(encoding="utf-8"))
    pipeline: str | None = content["pipeline"]
    return pipeline

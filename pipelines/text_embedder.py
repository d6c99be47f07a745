"""From raw captions to vectors: tokens, and for UniVSE the components that its parser finds in them.

C captions, D embedding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pipelines.text_input import text_batches
from preprocessing.captions.components import ComponentTable
from preprocessing.captions.encoder import load_caption_encoder
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.shards.batch import pad_tokens
from preprocessing.shards.storage import write_json_atomic
from vse_core.evaluation.embedding import embed_texts
from vse_core.models import Model, UnifiedModel

if TYPE_CHECKING:
    from spacy.language import Language

    from preprocessing.captions.graph import SceneGraph

PARSER = "parser.json"

_TEXTS_AT_ONCE = 256


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

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Embed texts into (C, D) unit vectors, float32, on the CPU."""
        table = self.components(texts) if isinstance(self.model, UnifiedModel) else None
        return embed_texts(self.model, text_batches(self._tokens(texts), table))

    def embed_halves(self, texts: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
        """What UniVSE makes a caption of: sentences (C, D), components (C, D), and which captions have any (C,).

        The model's ``alpha`` plays no part; a caption without components has its sentence in their place.
        """
        model = self.model
        assert isinstance(model, UnifiedModel)
        table = self.components(texts)
        captions = np.arange(len(texts))
        owners = [ids for name, ids in table.select(captions).items() if "owner" in name]
        has_C = torch.from_numpy(np.bincount(np.concatenate(owners), minlength=len(texts)) > 0)
        alpha, halves = model.alpha, []
        try:
            for model.alpha in (1.0, 0.0):
                halves.append(embed_texts(model, text_batches(self._tokens(texts), table)))
        finally:
            model.alpha = alpha
        sentences_CD, components_CD = halves
        return sentences_CD, components_CD, has_C

    def components(self, texts: Sequence[str]) -> ComponentTable:
        """Parse texts; components with words that the model does not know are left out."""
        from preprocessing.captions.scene_graph import parse_captions

        assert isinstance(self.caption_encoder, Vocabulary)
        graphs: list[list[SceneGraph]] = [
            [parsed.graph] for parsed in parse_captions(self._parser, texts, _TEXTS_AT_ONCE)
        ]
        return ComponentTable.build(graphs, self.caption_encoder)

    @cached_property
    def _parser(self) -> Language:
        from preprocessing.captions import load_pipeline

        return load_pipeline(self._pipeline)

    def _tokens(self, texts: Sequence[str]) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of token ids, in order."""
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            encoded = [
                np.array(self.caption_encoder.encode(text), dtype=np.int64)
                for text in texts[start : start + _TEXTS_AT_ONCE]
            ]
            yield pad_tokens(encoded, self.caption_encoder.pad_id)


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

"""Embeddings of UniVSE's objects, attributes, relations and regions, each by itself.

C captions, N regions, D embedding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from preprocessing.captions.components import NO_WORD, ComponentTable, nouns_of, pairs_of, relation_words, triples_of
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.loading.batch import component_tensors, pad_tokens
from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.atomic import write_json_atomic
from vse_core.models.unified import Components, UnifiedModel
from vse_core.outputs import embed

if TYPE_CHECKING:
    from spacy.language import Language

    from preprocessing.captions.graph import SceneGraph

PARSER = "parser.json"

_TEXTS_AT_ONCE = 256
_PHRASES_AT_ONCE = 4096

Phrase = tuple[str, ...]
"""A noun; a noun after what describes it, of which UniVSE reads the last word; or subject, relation and object."""


class ComponentEmbedder:
    """Embeds parts of captions and regions with UniVSE in evaluation mode; the parser None is the one that ships."""

    def __init__(self, model: UnifiedModel, vocabulary: Vocabulary, pipeline: str | None) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._pipeline = pipeline

    @property
    def alpha(self) -> float:
        """The share of the sentence in a caption's vector."""
        return self._model.alpha

    def inputs(self, texts: Sequence[str]) -> tuple[Any, ...]:
        """Parse texts for the model; components with words that it does not know are left out."""
        graphs = [[graph] for graph in self._graphs(texts)]
        encoder = self._model.text_encoder
        table = ComponentTable.build(graphs, self._vocabulary, encoder.numerals, encoder.relations)
        return (Components(**component_tensors(table.select(torch.arange(len(texts)).numpy()))),)

    def embed_halves(self, batches: Iterable[tuple[Any, ...]]) -> tuple[Tensor, Tensor, Tensor]:
        """Embed sentences (C, D) and all components, objects, attributes, relations (C, 4, D), with mask (C, 4)."""
        halves: tuple[Tensor, Tensor, Tensor] = embed(self._model, self._model.encode_halves, batches)
        return halves

    def phrases(self, text: str) -> list[Phrase]:
        """Return the objects, attributes and relations of a text, of words that the model knows."""
        (graph,) = self._graphs([text])
        found: list[Phrase] = [(noun,) for noun in nouns_of(graph)]
        found += [*pairs_of(graph, self._model.text_encoder.numerals), *triples_of(graph)]
        return [phrase for phrase in found if Vocabulary.UNK not in self._ids(phrase)]

    def as_read(self, graph: SceneGraph) -> SceneGraph:
        """Return a graph in the words in which the model reads components."""
        return graph.as_written() if self._model.text_encoder.surface_words else graph

    @torch.inference_mode()
    def embed_phrases(self, phrases: Sequence[Phrase]) -> Tensor:
        """Embed components as objects, attributes and relations: (phrases, D) unit vectors."""
        encode = self._model.text_encoder.encode_phrases
        device = next(self._model.parameters()).device
        vectors: dict[int, Tensor] = {}
        for length in {len(phrase) for phrase in phrases}:
            rows = [row for row, phrase in enumerate(phrases) if len(phrase) == length]
            ids, _ = pad_tokens([self._ids(phrases[row]) for row in rows], NO_WORD)
            parts = [encode(part.to(device)).cpu() for part in ids.split(_PHRASES_AT_ONCE)]
            vectors |= zip(rows, torch.cat(parts), strict=True)
        return torch.stack([vectors[row] for row in range(len(phrases))])

    @torch.inference_mode()
    def embed_all_regions(self, features_BNF: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Embed the regions of images into (B, N, D) unit vectors, on the CPU, with the mask (B, N) of regions."""
        device = next(self._model.parameters()).device
        encode = self._model.image_encoder.images_and_regions
        _, regions_BND, mask_BN = encode(features_BNF.to(device), lengths_B.to(device))
        return regions_BND.cpu(), mask_BN.cpu()

    def _ids(self, phrase: Phrase) -> list[int]:
        """The ids of a phrase's words, those of its relation one by one or joined."""
        words = list(phrase)
        if len(words) == 3:
            words[1:2] = relation_words(words[1], self._model.text_encoder.relations)
        found = [self._vocabulary.find(word.split()[-1]) for word in words]
        return [Vocabulary.UNK if word_id is None else word_id for word_id in found]

    def _graphs(self, texts: Sequence[str]) -> list[SceneGraph]:
        from preprocessing.captions.scene_graph.parse import parse_captions

        return [self.as_read(parsed.graph) for parsed in parse_captions(self._parser, texts, _TEXTS_AT_ONCE)]

    @cached_property
    def _parser(self) -> Language:
        from preprocessing.captions.pipeline import load_pipeline

        return load_pipeline(self._pipeline)


def write_parser(directory: Path, pipeline: str | None) -> None:
    """Record next to a model the parser that its captions went through; None is the one that ships."""
    write_json_atomic(directory / PARSER, {"pipeline": pipeline})


def read_parser(directory: Path) -> str | None:
    """Return the parser of a saved model; FileNotFoundError if its directory does not name it."""
    path = directory / PARSER
    if not path.is_file():
        raise FileNotFoundError(f"{directory} does not say which parser its model reads captions with: no {PARSER}")
    with damage_as(ValueError, f"{path} names no parser", "restore the folder"):
        pipeline: str | None = parse_json(path.read_bytes())["pipeline"]
    return pipeline

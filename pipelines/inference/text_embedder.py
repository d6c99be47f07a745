"""From raw captions to embeddings, and the captions of a split in batches for a model's text side.

C captions, D embedding.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from pipelines.kinds import saved_kind
from pipelines.kinds.behaviour import TextInputs
from pipelines.kinds.component_embedder import Phrase
from pipelines.runtime.progress import counted
from preprocessing.captions.encoder import load_caption_encoder
from preprocessing.captions.graph import SceneGraph
from preprocessing.captions.token_table import TokenTable
from preprocessing.captions.vocabulary import tokenize
from preprocessing.loading.batch import pad_tokens
from preprocessing.loading.loader import caption_batches
from vse_core.models import Model
from vse_core.outputs import embed

_TEXTS_AT_ONCE = 256
# What telephones type for the quotes of a keyboard. The tokenizer cuts them off as words of their own.
_CURLED = str.maketrans("‘’“”", "''\"\"")


class TextEmbedder:
    """Embeds captions with a model in evaluation mode and the files next to it, of its `components` if it has any.

    Raises FileNotFoundError, or ValueError if a file cannot be read.
    """

    def __init__(self, model: Model, directory: Path) -> None:
        self.model = model
        self.caption_encoder = load_caption_encoder(directory)
        behaviour = saved_kind(directory).behaviour
        self.components = behaviour.component_embedder(model, self.caption_encoder, directory)

    def embed(self, texts: Sequence[str], title: str | None = None) -> Tensor:
        """Embed texts into (C, D) unit vectors, float32, on the CPU; with a progress bar if there is a title."""
        texts_CD: Tensor = embed(self.model, self.model.encode_texts, self.batches(texts, title))
        return texts_CD

    def unknown_words(self, text: str) -> list[str]:
        """Return the words of a text that the model's vocabulary does not have; none if it reads pieces of words.

        Numbers and emojis are words, punctuation is not.
        """
        known = self.caption_encoder.vocabulary
        words = [] if known is None else dict.fromkeys(filter(_is_word, tokenize(self._typed(text))))
        return [word for word in words if known is not None and known.find(word) is None]

    def as_read(self, graph: SceneGraph) -> SceneGraph:
        """Return a graph in the words in which the model reads components, without components in base forms."""
        return graph if self.components is None else self.components.as_read(graph)

    def embed_phrases(self, phrases: Sequence[Phrase]) -> Tensor:
        """Embed objects, attributes and relations, without components as short texts: (phrases, D) unit vectors."""
        if self.components is not None:
            return self.components.embed_phrases(phrases)
        return self.embed([" ".join(phrase) for phrase in phrases])

    def batches(self, texts: Sequence[str], title: str | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield texts as `encode_texts` of the model takes them, in order; with a title, under a progress bar."""
        starts = range(0, len(texts), _TEXTS_AT_ONCE)
        batches = (self._batch(texts[start : start + _TEXTS_AT_ONCE]) for start in starts)
        return batches if title is None else counted(batches, title, len(texts), "captions")

    def _batch(self, texts: Sequence[str]) -> tuple[Any, ...]:
        texts = list(map(self._typed, texts))
        encoded = [np.array(self.caption_encoder.encode(text), dtype=np.int64) for text in texts]
        extra = () if self.components is None else self.components.inputs(texts)
        return (*pad_tokens(encoded, self.caption_encoder.pad_id), *extra)

    def _typed(self, text: str) -> str:
        """Return a text with a keyboard's quotes, if the model reads words and has learned none of telephones."""
        known = self.caption_encoder.vocabulary
        return text if known is None or known.find("’") is not None else text.translate(_CURLED)


def _is_word(token: str) -> bool:
    kinds = map(unicodedata.category, token)
    return any(kind[0] in "LN" or kind == "So" for kind in kinds)


def text_batches(
    tokens: TokenTable, pad_id: int, inputs: TextInputs, batch_size: int, captions: range | None = None
) -> Iterator[tuple[Any, ...]]:
    """Yield a split's captions, all by default, as `encode_texts` takes them; `inputs` is a `Behaviour.text_inputs`."""
    first = 0 if captions is None else captions.start
    for tokens_CL, lengths_C in caption_batches(tokens, pad_id, batch_size, captions):
        captions_C = np.arange(first, first := first + len(lengths_C))
        yield tokens_CL, lengths_C, *inputs(captions_C, tokens_CL.shape[1])

"""Tokenizers of pretrained text encoders (WordPiece, BPE, SentencePiece), with the words that tokens belong to."""

from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from tokenizers import Tokenizer

from preprocessing.captions.augment import Ids, WordNumbers, augment_words
from preprocessing.reading import damage_as
from preprocessing.storage.atomic import write_bytes_atomic

# BERT's positions, also for models with more: the time of attention grows with the square of a caption's length.
MAX_TOKENS = 512
# Raised when the file of a tokenizer, or what it makes of captions, changes.
FORMAT = 2

_MASKS = ("[MASK]", "<mask>")


class TokenizerError(ValueError):
    """A tokenizer cannot be read or used; the message says why and what to do."""


class SubwordTokenizer:
    """The tokenizer of a pretrained text encoder, with truncation and padding.

    Differs from the library's tokenizers, and changes the one that is given: a special entry written in a caption
    ("[MASK]") is text like any other, unless it is one of SentencePiece's own pieces.
    """

    FILE: ClassVar[str] = "tokenizer.json"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        tokenizer.encode_special_tokens = True
        padding: Any = tokenizer.padding
        self.pad_id: int = padding["pad_id"]
        self._length: int | None = padding["length"]
        self.vocabulary = None  # its tokens are pieces of words
        self._size = 1 + max(tokenizer.get_vocab().values(), default=0)
        masks = (tokenizer.token_to_id(name) for name in _MASKS)
        self._mask_id = next((mask for mask in masks if mask is not None), None)
        # Some tokenizers take a caption for one word.
        self._tells_words = len(set(tokenizer.encode("a b", add_special_tokens=False).word_ids)) > 1

    @classmethod
    def from_pretrained(cls, weights: str, for_tower: bool = False) -> Self:
        """Take the tokenizer that comes with a pretrained model: a local folder, or a name on the hub.

        With ``for_tower`` the text tower's own pooled state is used, for which SigLIP pads captions to its positions.
        Raises TokenizerError if there is none, or another than those of the `tokenizers` library.
        """
        # It takes seconds to import, and a saved tokenizer does without.
        from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast

        folder = Path(weights).expanduser()
        local = folder.is_dir()
        remedy = (
            "name a folder with config.json and tokenizer.json or vocab.txt (for SigLIP tokenizer.json), or a model on "
            "the hub if this machine reaches it"
        )
        with damage_as(TokenizerError, f"the weights {weights!r} bring no tokenizer that can be loaded", remedy):
            name, origin = str(folder) if local else weights, {"local_files_only": local, "trust_remote_code": False}
            config = AutoConfig.from_pretrained(name, **origin)
            if hasattr(config, "auto_map"):
                raise ValueError("config.json names code of its own, auto_map, which never runs here")
            loaded: Any = None
            with suppress(ImportError):  # SentencePiece need not be installed
                loaded = AutoTokenizer.from_pretrained(name, **origin)
            if getattr(loaded, "backend_tokenizer", None) is None:  # SigLIP's folders have a tokenizer.json as well
                loaded = PreTrainedTokenizerFast.from_pretrained(name, **origin)
            tokenizer = Tokenizer.from_str(loaded.backend_tokenizer.to_str())
            positions = getattr(config.get_text_config(), "max_position_embeddings", MAX_TOKENS)
            tokenizer.enable_truncation(min(MAX_TOKENS, positions, loaded.model_max_length))
            length = positions if for_tower and config.model_type.startswith("siglip") else None
            tokenizer.enable_padding(pad_id=loaded.pad_token_id or 0, length=length)
            return cls(tokenizer)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what :meth:`save` has written; raise TokenizerError if the file is missing or damaged."""
        with damage_as(TokenizerError, f"cannot read the tokenizer {path}", "copy it from the model again"):
            tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
            if tokenizer.truncation is None or tokenizer.padding is None:
                raise ValueError("it has no truncation or no padding, as those of earlier versions: train again")
        return cls(tokenizer)

    def __len__(self) -> int:
        return self._size

    def encode(self, text: str) -> list[int]:
        """Return token ids of a caption with the special ones around it, as many as the text encoder reads."""
        return self._tokenizer.encode(text).ids or [self.pad_id]

    def encode_words(self, text: str) -> tuple[list[int], list[int]]:
        """Return token ids as :meth:`encode` does, and the number of each one's word; -1 for special tokens.

        A tokenizer that does not tell words makes each token a word of its own.
        """
        encoding = self._tokenizer.encode(text)
        if not encoding.ids:
            return [self.pad_id], [-1]
        words = encoding.word_ids if self._tells_words else range(len(encoding.ids))
        special = encoding.special_tokens_mask
        return encoding.ids, [
            -1 if around or word is None else word for word, around in zip(words, special, strict=True)
        ]

    def truncates(self, text: str) -> bool:
        """Return whether a caption has more tokens than the text encoder reads."""
        return bool(self._tokenizer.encode(text).overflowing)

    def augment(self, ids_L: Ids, words_L: WordNumbers, rng: np.random.Generator, keep_ends: bool) -> Ids:  # noqa: ARG002
        """Mask, replace or delete words; see :func:`augment_words`. Special tokens always stay."""
        changed_L = augment_words(ids_L, words_L, rng, self._mask_id, len(self))
        missing = len(ids_L) - len(changed_L)
        return changed_L if self._length is None else np.pad(changed_L, (0, missing), constant_values=self.pad_id)

    def save(self, path: Path) -> None:
        """Write it in the format of the ``tokenizers`` library; the bytes depend on pieces and settings alone."""
        write_bytes_atomic(path, self._tokenizer.to_str().encode() + b"\n")

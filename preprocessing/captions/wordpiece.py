"""BERT's WordPiece tokenizer with its two steps apart: augmentation has to know the words."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from tokenizers.models import WordPiece as PieceModel
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from preprocessing.captions.augment import augment_words
from preprocessing.reading import damage_as, reason
from preprocessing.storage.atomic import write_bytes_atomic

# BERT's positions, also for models with more: the time of attention grows with the square of a caption's length.
MAX_TOKENS = 512

_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


class WordPieceError(ValueError):
    """A tokenizer cannot be read or is no WordPiece tokenizer; the message says why and what to do."""


class WordPiece:
    """BERT's tokenizer: basic tokenization into words, then the longest known pieces of each word.

    Differs from the library's tokenizers: a special entry that is written in a caption ("[MASK]") is text like any
    other.

    Args:
        model: the known pieces.
        normalizer: cleans the text; lower-cases it and strips accents where the tokenizer is an uncased one.
        max_tokens: positions of the text encoder; the end of a longer caption is cut off.

    Raises:
        WordPieceError: one of BERT's special entries is not among the pieces.
    """

    FILE: ClassVar[str] = "tokenizer.json"

    def __init__(self, model: PieceModel, normalizer: BertNormalizer, max_tokens: int = MAX_TOKENS) -> None:
        self._tokenizer = Tokenizer(model)
        self._tokenizer.enable_truncation(max_tokens - 2)
        self._tokenizer.normalizer = normalizer
        self._tokenizer.pre_tokenizer = BertPreTokenizer()
        ids = self._tokenizer.get_vocab(with_added_tokens=False)
        missing = [name for name in _SPECIALS if name not in ids]
        if missing:
            raise WordPieceError(
                f"the tokenizer has no entry {', '.join(missing)}, as BERT's have: use one of its kind"
            )
        self.pad_id, _, self._start_id, self._end_id, self._mask_id = (ids[name] for name in _SPECIALS)
        self.vocabulary = None  # its tokens are pieces of words
        self._begins_word = np.ones(max(ids.values()) + 1, dtype=bool)
        prefix = model.continuing_subword_prefix
        self._begins_word[[index for piece, index in ids.items() if piece.startswith(prefix)]] = False

    @classmethod
    def from_pretrained(cls, weights: str) -> WordPiece:
        """Take the tokenizer that comes with a pretrained model.

        Args:
            weights: local folder with vocab.txt or tokenizer.json, or a name on the hub.

        Raises:
            WordPieceError: there is none, or it is of another kind.
        """
        from transformers import AutoConfig, AutoTokenizer  # takes seconds, and a saved tokenizer does without

        folder = Path(weights).expanduser()
        local = folder.is_dir()
        try:
            config, loaded = (
                auto.from_pretrained(str(folder) if local else weights, local_files_only=local, trust_remote_code=False)
                for auto in (AutoConfig, AutoTokenizer)
            )
            if hasattr(config, "auto_map"):
                raise ValueError("config.json names code of its own, auto_map, which never runs here")
        except Exception as error:  # of a damaged folder transformers raises what it likes
            raise WordPieceError(
                f"the weights {weights!r} bring no tokenizer that can be loaded ({reason(error)}); name a folder with "
                "config.json and vocab.txt or tokenizer.json, or a model on the hub where the network reaches it"
            ) from error
        max_tokens = min(MAX_TOKENS, getattr(config, "max_position_embeddings", MAX_TOKENS))
        return cls._from_tokenizer(getattr(loaded, "backend_tokenizer", None), weights, max_tokens)

    @classmethod
    def load(cls, path: Path) -> WordPiece:
        """Read what :meth:`save` has written.

        Raises:
            WordPieceError: the file is missing or damaged.
        """
        with damage_as(WordPieceError, f"cannot read the tokenizer {path}", "copy it from the model again"):
            tokenizer = Tokenizer.from_str(Path(path).read_text(encoding="utf-8"))
            cut = tokenizer.truncation
            return cls._from_tokenizer(tokenizer, str(path), MAX_TOKENS if cut is None else cut["max_length"] + 2)

    @classmethod
    def _from_tokenizer(cls, tokenizer: Tokenizer | None, origin: str, max_tokens: int) -> WordPiece:
        model, normalizer = getattr(tokenizer, "model", None), getattr(tokenizer, "normalizer", None)
        if not isinstance(model, PieceModel) or not isinstance(normalizer, BertNormalizer):
            raise WordPieceError(
                f"{origin}: the tokenizer is not BERT's WordPiece but {type(model).__name__} after "
                f"{type(normalizer).__name__}; use a model of BERT's kind (BERT, DistilBERT, ELECTRA, MiniLM)"
            )
        return cls(model, normalizer, max_tokens)

    def __len__(self) -> int:
        return len(self._begins_word)

    def basic(self, text: str) -> list[str]:
        """Cut a caption into words: cleaned, if uncased lower-cased without accents; punctuation and CJK alone."""
        cleaned = self._tokenizer.normalizer.normalize_str(text)
        return [word for word, _ in self._tokenizer.pre_tokenizer.pre_tokenize_str(cleaned)]

    def wordpiece(self, word: str) -> list[int]:
        """Cut a word into the longest known pieces from its beginning on; one ``[UNK]`` where that fails."""
        return [piece.id for piece in self._tokenizer.model.tokenize(word)]

    def encode(self, text: str) -> list[int]:
        """The pieces of all words of a caption between ``[CLS]`` and ``[SEP]``, as many as the text encoder reads."""
        return [self._start_id, *self._tokenizer.encode(text).ids, self._end_id]

    def truncates(self, text: str) -> bool:
        """Return whether a caption has more pieces than the text encoder reads."""
        return bool(self._tokenizer.encode(text).overflowing)

    def augment(
        self,
        ids_L: npt.NDArray[np.int32],
        rng: np.random.Generator,
        keep_ends: bool,  # noqa: ARG002
    ) -> npt.NDArray[np.int32]:
        """Mask, replace or delete words between ``[CLS]`` and ``[SEP]``; see :func:`augment_words`.

        Args:
            ids_L: a caption from :meth:`encode`; not changed.
            rng: see :func:`sample_rng`.
            keep_ends: without effect, as ``[CLS]`` and ``[SEP]`` always stay.
        """
        words_L = ids_L[1:-1]
        changed_L = augment_words(words_L, self._begins_word[words_L], rng, self._mask_id, len(self))
        return np.concatenate([ids_L[:1], changed_L, ids_L[-1:]])

    def save(self, path: Path) -> None:
        """Write it in the format of the ``tokenizers`` library; the bytes depend on pieces and settings alone."""
        write_bytes_atomic(Path(path), self._tokenizer.to_str().encode() + b"\n")

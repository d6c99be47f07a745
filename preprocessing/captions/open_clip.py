"""The tokenizers of open_clip's text towers: its own code, with the files that they are made of."""

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

import numpy as np

from preprocessing.captions.augment import Ids, WordNumbers, augment_words
from preprocessing.captions.subwords import TokenizerError
from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.atomic import write_bytes_atomic

_CONFIG = "open_clip_config.json"
# What `get_tokenizer` reads of the settings of a text tower.
_KEYS = ("context_length", "hf_tokenizer_name", "tokenizer_mode", "tokenizer_kwargs")


class OpenClipTokenizer:
    """A tokenizer of open_clip; captions are padded to the length that their text tower was trained with.

    `files` are the texts of its files, by name. The package `open_clip_torch` must be there.
    """

    FILE: ClassVar[str] = "open_clip_tokenizer.json"

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = dict(files)
        with TemporaryDirectory() as folder:
            self.write_files(Path(folder), _CONFIG)
            self._tokenizer = _open(f"local-dir:{folder}", parse_json(files[_CONFIG])["model_cfg"]["text_cfg"])
        library = getattr(self._tokenizer, "tokenizer", None)
        self.pad_id: int = 0 if library is None else library.pad_token_id or 0
        self.vocabulary = None  # its tokens are pieces of words
        self._size = self._tokenizer.vocab_size if library is None else len(library)
        self._specials = {self.pad_id, *(self._tokenizer if library is None else library).all_special_ids}

    @classmethod
    def from_pretrained(cls, source: str) -> Self:
        """Take the tokenizer of `local-dir:FOLDER` or `hf-hub:NAME`; TokenizerError if there is none to be loaded."""
        with damage_as(TokenizerError, f"{source} brings no tokenizer that open_clip loads", "copy its files there"):
            text = import_module("open_clip").get_model_config(source)["text_cfg"]
            settings = {key: text[key] for key in _KEYS if key in text}
            with TemporaryDirectory() as folder:
                if text.get("hf_tokenizer_name"):
                    _open(source, text).save_pretrained(folder)
                saved = [file for file in sorted(Path(folder).iterdir()) if file.suffix in (".json", ".txt")]
                files = {file.name: file.read_text(encoding="utf-8") for file in saved}
            return cls({**files, _CONFIG: json.dumps({"model_cfg": {"text_cfg": settings}})})

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what :meth:`save` has written; raise TokenizerError if the file is missing or damaged."""
        with damage_as(TokenizerError, f"cannot read the tokenizer {path}", "copy it from the model again"):
            return cls(parse_json(path.read_bytes(), any_text=True))

    def __len__(self) -> int:
        return self._size

    def encode(self, text: str) -> list[int]:
        """Return token ids of a caption, with special ones around it and padding after it."""
        ids: list[int] = self._tokenizer([text])[0].tolist()
        return ids

    def encode_words(self, text: str) -> tuple[list[int], list[int]]:
        """Return token ids as :meth:`encode` does, each a word of its own; -1 for special tokens and padding."""
        ids = self.encode(text)
        return ids, [-1 if token in self._specials else place for place, token in enumerate(ids)]

    def truncates(self, text: str) -> bool:
        """Return whether a caption has more tokens than the text tower reads: a longer tower would get another one."""
        longer = self._tokenizer([text], context_length=self._tokenizer.context_length + 1)[0].tolist()
        ids = self.encode(text)
        return longer not in ([*ids, self.pad_id], [*ids[:-1], self.pad_id, ids[-1]])

    def augment(self, ids_L: Ids, words_L: WordNumbers, rng: np.random.Generator, keep_ends: bool) -> Ids:  # noqa: ARG002
        """Replace or delete tokens; see :func:`augment_words`. Special tokens always stay."""
        changed_L = augment_words(ids_L, words_L, rng, None, len(self))
        # With open_clip's mode "clips" a class token is the last one, after the padding.
        end = len(changed_L) - (getattr(self._tokenizer, "tokenizer_mode", "") == "clips")
        return np.insert(changed_L, end, [self.pad_id] * (len(ids_L) - len(changed_L)))

    def save(self, path: Path) -> None:
        """Write its files as one of JSON."""
        write_bytes_atomic(path, json.dumps(self.files, sort_keys=True).encode() + b"\n")

    def write_files(self, folder: Path, *more: str) -> None:
        """Write the files of the library's tokenizer, if it is made of any."""
        for name in self.files.keys() - {_CONFIG} | set(more):
            (folder / Path(name).name).write_text(self.files[name], encoding="utf-8")


def _open(source: str, text: Mapping[str, Any]) -> Any:
    """Return the tokenizer of a source; none of its own code runs, whatever its settings say."""
    plain = {"trust_remote_code": False} if text.get("hf_tokenizer_name") else {}
    return import_module("open_clip").get_tokenizer(source, **plain)

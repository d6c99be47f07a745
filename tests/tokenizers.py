"""Small tokenizers of every kind, built with the `tokenizers` library and written by transformers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, PreTrainedTokenizerFast

_BERT = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
_ROBERTA = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>", "mask_token": "<mask>"}
_CLIP = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
_SPECIALS: dict[str, tuple[str, dict[str, str]]] = {
    "bpe": ("roberta", _ROBERTA),
    "unigram": ("xlm-roberta", _ROBERTA),
    "clip_bpe": ("clip_text_model", {**_CLIP, "pad_token": "<|endoftext|>"}),
    "siglip": ("siglip_text_model", {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}),
}


def wordpiece(ids: dict[str, int], lowercase: bool = True) -> Tokenizer:
    """BERT's, with known pieces."""
    tokenizer = Tokenizer(models.WordPiece(vocab=ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = [(name, ids[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=specials)
    tokenizer.add_special_tokens(list(_BERT.values()))
    return tokenizer


def bpe() -> Tokenizer:
    """RoBERTa's, to be trained."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def unigram() -> Tokenizer:
    """SentencePiece's, as of XLM-R and SigLIP, to be trained."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


def clip_bpe() -> Tokenizer:
    """CLIP's, to be trained."""
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    tokenizer.normalizer = normalizers.Lowercase()
    words = pre_tokenizers.Split(Regex(r"'s|'t|[a-z]+|[0-9]|[^\\s a-z0-9]+"), "removed", invert=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(False, use_regex=False)])
    return tokenizer


def train_on(tokenizer: Tokenizer, texts: Sequence[str]) -> Tokenizer:
    """Train on a few texts; special entries are added as it is written."""
    alphabet = sorted({*"abcdefghijklmnopqrstuvwxyz", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ<>[]|/!',.-"})
    if isinstance(tokenizer.model, models.Unigram):
        trainer: Any = trainers.UnigramTrainer(
            vocab_size=120,
            initial_alphabet=alphabet,
            special_tokens=["<s>", "</s>", "<pad>", "<unk>"],
            unk_token="<unk>",
        )
    else:
        trainer = trainers.BpeTrainer(
            vocab_size=420,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            end_of_word_suffix=tokenizer.model.end_of_word_suffix or "",
            special_tokens=list(dict.fromkeys(_CLIP.values())) if tokenizer.model.unk_token else [],
        )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def library_tokenizer(tokenizer: Tokenizer, kind: str, longest: int = 40) -> PreTrainedTokenizerFast:
    """Return what transformers has around a tokenizer of a kind of published model."""
    _, specials = _SPECIALS[kind]
    tokenizer.add_special_tokens(list(dict.fromkeys(specials.values())))
    ends = [specials[name] for name in ("bos_token", "eos_token") if name in specials]
    template = " ".join([*ends[:-1], "$A", ends[-1]])
    around = [(name, tokenizer.token_to_id(name)) for name in ends]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=around)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=longest, **specials)


def write_tokenizer(tokenizer: Tokenizer, folder: Path, kind: str) -> None:
    """Write a tokenizer and the configuration of a model of a kind, as transformers writes them."""
    library_tokenizer(tokenizer, kind).save_pretrained(folder)
    AutoConfig.for_model(_SPECIALS[kind][0]).save_pretrained(folder)

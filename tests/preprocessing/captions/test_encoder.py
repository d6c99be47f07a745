"""Caption encoders of both kinds: one file next to the model brings the right one back."""

from pathlib import Path

import numpy as np
import pytest

from preprocessing.captions import (
    CaptionEncoder,
    SubwordTokenizer,
    Vocabulary,
    load_caption_encoder,
    save_caption_encoder,
)
from preprocessing.randomness import sample_rng
from tests.tokenizers import wordpiece

PIECES = ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "dog", "##gy", "runs"]
TOKENIZER = wordpiece({piece: place for place, piece in enumerate(PIECES)})
TOKENIZER.enable_truncation(512)
TOKENIZER.enable_padding(pad_id=4)
ENCODERS: list[CaptionEncoder] = [
    Vocabulary.build(["doggy runs"], min_count=1),
    SubwordTokenizer(TOKENIZER),
]


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda encoder: type(encoder).__name__)
def test_saved_and_loaded(encoder: CaptionEncoder, tmp_path: Path) -> None:
    save_caption_encoder(encoder, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [encoder.FILE]
    loaded = load_caption_encoder(tmp_path)
    assert type(loaded) is type(encoder)
    assert (len(loaded), loaded.pad_id) == (len(encoder), encoder.pad_id)
    assert loaded.encode("doggy runs far") == encoder.encode("doggy runs far")


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda encoder: type(encoder).__name__)
def test_augmentation_is_a_function_of_seed_epoch_and_sample(encoder: CaptionEncoder) -> None:
    ids, words = np.array(encoder.encode_words("doggy runs " * 6), dtype=np.int32)

    def epoch(seed: int, number: int) -> list[list[int]]:
        return [
            encoder.augment(ids, words, sample_rng(seed, number, sample, 1), False).tolist() for sample in range(30)
        ]

    assert epoch(0, 0) == epoch(0, 0)
    assert epoch(0, 0)[17:] == [
        encoder.augment(ids, words, sample_rng(0, 0, s, 1), False).tolist() for s in range(17, 30)
    ]
    assert epoch(0, 0) != epoch(0, 1)
    assert epoch(0, 0) != epoch(1, 0)
    assert all(0 <= token < len(encoder) for caption in epoch(0, 0) for token in caption)


def test_the_padding_is_the_encoders_own() -> None:
    assert [encoder.pad_id for encoder in ENCODERS] == [0, 4]


def test_a_directory_without_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no vocabulary\.json or tokenizer\.json"):
        load_caption_encoder(tmp_path)

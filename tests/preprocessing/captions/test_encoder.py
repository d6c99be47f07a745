"""Caption encoders of both kinds: one file next to the model brings the right one back."""

from pathlib import Path

import pytest

from preprocessing.captions.encoder import CaptionEncoder, load_caption_encoder
from preprocessing.captions.subwords import SubwordTokenizer
from preprocessing.captions.vocabulary import Vocabulary
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
    encoder.save(tmp_path / encoder.FILE)
    assert [path.name for path in tmp_path.iterdir()] == [encoder.FILE]
    loaded = load_caption_encoder(tmp_path)
    assert type(loaded) is type(encoder)
    assert (len(loaded), loaded.pad_id) == (len(encoder), encoder.pad_id)
    assert loaded.encode("doggy runs far") == encoder.encode("doggy runs far")


def test_a_directory_without_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no vocabulary\.json or tokenizer\.json"):
        load_caption_encoder(tmp_path)

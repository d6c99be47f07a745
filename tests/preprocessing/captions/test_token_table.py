"""Tables of tokens: the same in memory and mapped from files, whatever the number of captions."""

from pathlib import Path

import numpy as np
import pytest

from preprocessing.captions.token_table import TokenTable
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.shards.split_index import map_fields, save_fields

TEXTS = ["a dog runs", "two", "a man's red hat", "", "dogs on grass ."] * 3
WORDS = Vocabulary.build(TEXTS, 2)


@pytest.mark.parametrize("count", [0, 1, 4, 15])
def test_tables_are_the_encoded_captions(tmp_path: Path, count: int) -> None:
    save_fields(TokenTable.encode(iter(TEXTS[:count]), WORDS), tmp_path)
    mapped = TokenTable(**map_fields(TokenTable, tmp_path))
    for table in (TokenTable.encode(iter(TEXTS[:count]), WORDS), mapped):
        assert len(table) == count
        found = [(table.ids(c).tolist(), table.words_of(c).tolist()) for c in range(count)]
        assert found == [WORDS.encode_words(text) for text in TEXTS[:count]]
        assert (table.tokens.dtype, table.words.dtype, table.token_starts.dtype) == (np.int32, np.int16, np.int64)
    assert not count or isinstance(mapped.tokens.base, np.memmap)
    np.testing.assert_array_equal(np.load(tmp_path / "tokens.npy"), mapped.tokens)

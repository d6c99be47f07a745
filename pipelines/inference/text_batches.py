"""The captions of a split in the format of a model's text side, batch by batch."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from pipelines.kinds.behaviour import TextInputs
from preprocessing.captions.token_table import TokenTable
from preprocessing.loading.loader import caption_batches


def text_batches(
    tokens: TokenTable, pad_id: int, inputs: TextInputs, batch_size: int, captions: range | None = None
) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments of `encode_texts` for the captions of a split, in order, by default of all.

    `inputs` gives the arguments after tokens and lengths (`Behaviour.text_inputs`); the last batch may be smaller.
    """
    first = 0 if captions is None else captions.start
    for tokens_CL, lengths_C in caption_batches(tokens, pad_id, batch_size, captions):
        captions_C = np.arange(first, first := first + len(lengths_C))
        yield tokens_CL, lengths_C, *inputs(captions_C, tokens_CL.shape[1])

"""The captions of a split in the format of a model's text side, batch by batch."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from pipelines.kinds.kind import TextInputs
from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.loading.loader import caption_batches
from preprocessing.shards.reader import ShardReader


def text_batches(
    reader: ShardReader,
    caption_encoder: CaptionEncoder,
    inputs: TextInputs,
    batch_size: int,
    images: range | None = None,
) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments of `encode_texts` for the captions of a split, in order, by default of all images.

    `inputs` gives the arguments after tokens and lengths (`ModelKind.text_inputs`); the last batch may be smaller.
    """
    first = 0 if images is None else int(reader.caption_starts[images.start])
    for tokens_CL, lengths_C in caption_batches(reader, caption_encoder, batch_size, images):
        captions_C = np.arange(first, first := first + len(lengths_C))
        yield tokens_CL, lengths_C, *inputs(captions_C, tokens_CL.shape[1])

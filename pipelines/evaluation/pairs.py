"""The similarity of captions to their own images, for any images of a split.

C captions, B images.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pipelines.inference.image_inputs import image_source
from pipelines.inference.text_embedder import TextEmbedder
from pipelines.runtime.progress import progress_bar
from preprocessing.shards.reader import ShardReader
from vse_core.evaluation.pair_fit import own_similarities
from vse_core.outputs import embed

# Images whose embeddings are in memory at a time.
_AT_ONCE = 512


def pair_similarities(
    embedder: TextEmbedder, reader: ShardReader, images: Sequence[int], texts: Sequence[str]
) -> tuple[Tensor, Tensor]:
    """Return the similarity (C,) of each caption to its image, and the number of captions (B,) of each image.

    `images` are numbers in the reader, `texts` their captions, one after another.
    """
    model, source = embedder.model, image_source(embedder.model, reader)
    counts_B = torch.from_numpy(reader.caption_counts[list(images)])
    found, first = [torch.empty(0)], 0
    with progress_bar("score pairs", len(images), "images") as bar:
        for start in range(0, len(images), _AT_ONCE):
            part, counts_b = list(images[start : start + _AT_ONCE]), counts_B[start : start + _AT_ONCE]
            batches = (source.unaugmented(part[place : place + 128]) for place in range(0, len(part), 128))
            images_bKD = embed(model, model.encode_images, batches)
            captions = texts[first : first + int(counts_b.sum())]
            if captions:
                found.append(own_similarities(images_bKD, embedder.embed(captions), counts_b))
            first += len(captions)
            bar.update(len(part))
    return torch.cat(found), counts_B

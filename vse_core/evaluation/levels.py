"""Ranking by a hierarchical model, whose similarities are no inner products of embeddings.

V videos, C captions.
"""

import torch
from torch import Tensor

from vse_core.evaluation.ranks import Ranks, TrueItems, against_the_model, rank_queries
from vse_core.models.hierarchical import similarities
from vse_core.outputs import TextLevels, VideoLevels

# Cosines of frames and phrases that are held at once; 64 MiB in float32, of which a few copies are alive.
TILE_ELEMENTS = 2**24


@torch.inference_mode()
def rank_levels(
    videos: VideoLevels, texts: TextLevels, video_to_text: TrueItems, text_to_video: TrueItems
) -> tuple[Ranks, Ranks]:
    """Rank all captions for every video and all videos for every caption, in tiles.

    Args:
        videos: of the gallery.
        texts: the different captions.
        video_to_text: the captions that are true for each video, at least one.
        text_to_video: the videos that are true for each caption, at least one.

    Returns:
        The ranks of the videos, and of the captions.

    Raises:
        ValueError: a query has no true item, or an item is not in the gallery.
    """
    of_a_pair = max(1, videos.frame_mask_bN.shape[1] * (texts.action_mask_cA.shape[1] + texts.entity_mask_cE.shape[1]))

    def of_videos(run: slice) -> Tensor:
        rows = videos[run]
        step = max(1, TILE_ELEMENTS // (of_a_pair * max(1, len(rows.events_bD))))
        starts = range(0, len(texts.events_cD), step)
        return against_the_model(torch.cat([similarities(rows, texts[start : start + step]) for start in starts], 1))

    def of_texts(run: slice) -> Tensor:
        rows = texts[run]
        step = max(1, TILE_ELEMENTS // (of_a_pair * max(1, len(rows.events_cD))))
        starts = range(0, len(videos.events_bD), step)
        tiles = [similarities(videos[start : start + step], rows) for start in starts]
        return against_the_model(torch.cat(tiles).T.contiguous())

    return (
        rank_queries(of_videos, video_to_text, len(texts.events_cD)),
        rank_queries(of_texts, text_to_video, len(videos.events_bD)),
    )

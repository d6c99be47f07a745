"""Ranking by a hierarchical model, in tiles, against the sort of every query."""

import pytest
import torch

from tests.vse_core.training.tiny_levels import levels_batch, tiny_levels
from vse_core.evaluation import levels
from vse_core.evaluation.ranks import TrueItems
from vse_core.models.hierarchical import similarities

# Captions 0 and 3 belong to video 0; caption 4 to videos 1 and 2.
PAIRS = [(0, 0), (0, 3), (1, 1), (1, 4), (2, 4), (2, 2), (3, 5), (4, 6)]


@pytest.mark.parametrize("elements", [1, 400, 2**24])
def test_ranks_are_those_of_a_sort(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "TILE_ELEMENTS", elements)
    model = tiny_levels().double().eval()
    (features, frames, tokens, lengths, graphs), _ = levels_batch(7, 2)
    with torch.inference_mode():
        videos, texts = model(features.double(), frames, tokens, lengths, graphs)
    videos = videos[:5]
    sims = similarities(videos, texts).tolist()
    video_P, text_P = (torch.tensor(column) for column in zip(*PAIRS, strict=True))
    of_videos, of_texts = levels.rank_levels(
        videos, texts, TrueItems.of_pairs(video_P, text_P, 5), TrueItems.of_pairs(text_P, video_P, 7)
    )
    for video in range(5):
        order = sorted(range(7), key=lambda text, row=sims[video]: -row[text])
        assert of_videos.ranks_Q[video] == min(order.index(text) for v, text in PAIRS if v == video)
    for text in range(7):
        order = sorted(range(5), key=lambda video, column=text: -sims[video][column])
        assert of_texts.ranks_Q[text] == min(order.index(video) for video, t in PAIRS if t == text)

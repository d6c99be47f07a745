"""Ranking by a hierarchical model, in tiles, against the sort of every query; ensembles with embeddings."""

import pytest
import torch

from tests.vse_core.evaluation.naive import naive_ranks
from tests.vse_core.training.tiny_levels import levels_batch, tiny_levels
from vse_core.evaluation import members
from vse_core.evaluation.directions import rank_direction
from vse_core.evaluation.ranks import RelevantItems
from vse_core.evaluation.recall import rank_retrieval
from vse_core.losses.hierarchical import TextLevels, VideoLevels, level_similarities

# Captions 0 and 3 belong to video 0; caption 4 to videos 1 and 2.
PAIRS = [(0, 0), (0, 3), (1, 1), (1, 4), (2, 4), (2, 2), (3, 5), (4, 6)]


def levels() -> tuple[VideoLevels, TextLevels, list[list[float]]]:
    """Five videos and seven captions, and their similarities."""
    model = tiny_levels().double().eval()
    (features, frames, tokens, lengths, graphs), _ = levels_batch(7, 2)
    with torch.inference_mode():
        videos, texts = model(features.double(), frames, tokens, lengths, graphs)
    return videos[:5], texts, level_similarities(videos[:5], texts).mean(dim=0).tolist()


@pytest.mark.parametrize("elements", [1, 400, 2**24])
def test_ranks_are_those_of_a_sort(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "CHUNK_ELEMENTS", elements)
    videos, texts, sims = levels()
    video_P, text_P = (torch.tensor(column) for column in zip(*PAIRS, strict=True))
    of_videos = rank_direction([(videos, texts)], "i2t", RelevantItems.of_pairs(video_P, text_P, 5))
    of_texts = rank_direction([(videos, texts)], "t2i", RelevantItems.of_pairs(text_P, video_P, 7))
    expected = [naive_ranks(row, [text for v, text in PAIRS if v == video]).rank for video, row in enumerate(sims)]
    assert of_videos.ranks_Q.tolist() == expected
    columns = enumerate(zip(*sims, strict=True))
    expected = [naive_ranks(column, [video for video, t in PAIRS if t == text]).rank for text, column in columns]
    assert of_texts.ranks_Q.tolist() == expected


@pytest.mark.parametrize("counts", [[1, 1, 2, 1, 2], [3, 1, 1, 1, 1]])
def test_both_directions_at_once(counts: list[int]) -> None:
    videos, texts, sims = levels()
    owners = [video for video, count in enumerate(counts) for _ in range(count)]
    found = rank_retrieval([(videos, texts)], counts)[1]
    expected = [naive_ranks(row, [t for t in range(7) if owners[t] == video]).rank for video, row in enumerate(sims)]
    assert found.image_to_text.ranks_Q.tolist() == expected
    columns = zip(owners, zip(*sims, strict=True), strict=True)
    assert found.text_to_image.ranks_Q.tolist() == [naive_ranks(column, [owner]).rank for owner, column in columns]


def test_an_ensemble_of_levels_and_embeddings_takes_the_mean() -> None:
    videos, texts, sims = levels()
    images_BD, texts_CD = torch.randn(5, 4, dtype=torch.float64), torch.randn(7, 4, dtype=torch.float64)
    mean = (torch.tensor(sims) + images_BD @ texts_CD.T) / 2
    found = rank_retrieval([(videos, texts), (images_BD, texts_CD)], [1, 1, 2, 1, 2])[1].result()
    first = mean.argmax(dim=1).tolist()
    owners = [0, 1, 2, 2, 3, 4, 4]
    assert found.image_to_text.r01 == pytest.approx(100 * sum(owners[t] == v for v, t in enumerate(first)) / 5)


def test_levels_are_not_compared_among_themselves() -> None:
    videos, texts, _ = levels()
    own = RelevantItems.of_pairs(torch.arange(7), (torch.arange(7) + 1) % 7, 7)
    with pytest.raises(ValueError, match="compares images with captions alone"):
        rank_direction([(videos, texts)], "t2t", own)

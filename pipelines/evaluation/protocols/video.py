"""Video-text retrieval as HGR evaluates it and VSE-infinity after it: MSR-VTT and VATEX."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pipelines.evaluation.protocols.rankings import Embedded, direction_values
from pipelines.evaluation.protocols.results import Results
from pipelines.evaluation.query_table import Items, query_rows, write_query_table
from vse_core.evaluation.directions import Direction, rank_direction
from vse_core.evaluation.members import Member
from vse_core.evaluation.protocols import VIDEO_PROTOCOLS
from vse_core.evaluation.ranks import RelevantItems

_DIRECTIONS: dict[str, Direction] = {"v2t": "i2t", "t2v": "t2i"}


def video_retrieval(name: str, embedded: Embedded) -> Results:
    """Rank the split's different sentences for every video, and all videos for every sentence.

    A sentence that several videos share is one item of the gallery and one query, and all of them are relevant to it; a
    video's rank is that of its best sentence. The median rank is not rounded. Metrics are ``NAME/rsum``,
    ``NAME/v2t_r01`` ... ``NAME/t2v_ties``, with intervals ``NAME/v2t_r01_low`` and so on, and ``NAME/sentences``.
    """
    captions = Items.captions(embedded.records)
    first_S, sentence_of_C = different(captions.names)
    video_of_C = torch.tensor([video for video, record in enumerate(embedded.records) for _ in record.captions])
    members: list[Member] = [(videos, texts[first_S]) for videos, texts in embedded.members]
    true = {
        "v2t": RelevantItems.of_pairs(video_of_C, sentence_of_C, len(embedded.records)),
        "t2v": RelevantItems.of_pairs(sentence_of_C, video_of_C, len(first_S)),
    }
    items = {"v": Items.images(embedded.records), "t": captions.take(first_S)}
    # The sentences of a video are drawn with it; a shared one with its first video.
    groups = {"v2t": None, "t2v": video_of_C[first_S].unique(return_inverse=True)[1]}
    metrics: dict[str, float] = {}
    tables = []
    for way, direction in _DIRECTIONS.items():
        ranks = rank_direction(members, direction, true[way])
        values = direction_values(ranks, groups[way], round_median=False)
        metrics |= {f"{name}/{way}_{key}": value for key, value in values.items()}
        tables.append(query_rows(way, ranks, items[way[0]], items[way[-1]]))
    rsum = sum(metrics[f"{name}/{way}_r{k:02}"] for way in _DIRECTIONS for k in (1, 5, 10))
    metrics |= {f"{name}/rsum": rsum, f"{name}/sentences": float(len(first_S))}
    file = write_query_table(embedded.directory, name, tables)
    return Results(name, metrics, f"{VIDEO_PROTOCOLS[name].title} RSUM {rsum:.1f}", files=(file,))


def different(sentences: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return the first index of each of the S different sentences (S,), and the sentence of each of the C (C,)."""
    numbers: dict[str, int] = {}
    sentence_of_C = [numbers.setdefault(sentence, len(numbers)) for sentence in sentences]
    first_S = [0] * len(numbers)
    for place in range(len(sentences) - 1, -1, -1):
        first_S[sentence_of_C[place]] = place
    return torch.tensor(first_S), torch.tensor(sentence_of_C)

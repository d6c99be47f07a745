"""Protocols by name: what they measure, the tables they leave, the splits they refuse; video against plain loops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch

from pipelines.config.training import EVALUATION_PROTOCOLS, GRAPH_PROTOCOLS
from pipelines.evaluation.protocols import CAPTION_PROTOCOLS, RANKINGS, Embedded, retrieval
from pipelines.evaluation.protocols.rankings import corrected_retrieval, require_published
from pipelines.evaluation.protocols.video import different
from pipelines.retrieval.gallery import Biases, Gallery
from pipelines.runtime.stage import StageError
from tests.pipelines.evaluation.protocols.galleries import best_rank, coarse_gallery, records_of, scores
from vse_core.evaluation.protocols import RETRIEVAL_PROTOCOLS, PublishedProtocol
from vse_core.evaluation.recall import rank_retrieval

PUBLISHED = {"flickr8k_1k": (1000,), "flickr30k_1k": (1000,), "coco_1k": (5000,), "coco_5k": (5000,)}


def test_the_configuration_knows_every_protocol() -> None:
    assert set(EVALUATION_PROTOCOLS) == {"retrieval", *RANKINGS, *CAPTION_PROTOCOLS}
    assert set(CAPTION_PROTOCOLS) == GRAPH_PROTOCOLS
    assert {name: protocol.sizes for name, protocol in RETRIEVAL_PROTOCOLS.items()} == PUBLISHED


def test_retrieval_leaves_a_row_for_every_query(tmp_path: Path) -> None:
    records = records_of([[f"{c} of {image}" for c in range(1 + image % 3)] for image in range(30)])
    galleries = [coarse_gallery(records, 2, 3, 0), coarse_gallery(records, 1, 4, 1)]
    found = retrieval(Embedded(galleries, "dev", tmp_path), 1)
    members = [(gallery.images_BKD, gallery.texts_CD) for gallery in galleries]
    expected = rank_retrieval(members, [len(record.captions) for record in records])[1].result().as_dict()
    assert {name: found.metrics[name] for name in expected} == expected
    assert found.metrics["rsum_low"] < expected["rsum"] < found.metrics["rsum_high"]

    rows = pyarrow.parquet.read_table(tmp_path / "retrieval_queries.parquet").to_pylist()
    captions = [(image, caption) for image, record in enumerate(records) for caption in record.captions]
    owner = {caption.caption_id: image for image, caption in captions}
    by_image = [row for row in rows if row["direction"] == "i2t"]
    by_caption = [row for row in rows if row["direction"] == "t2i"]
    assert [row["query_id"] for row in by_image] == [record.image_id for record in records]
    assert [row["query"] for row in by_caption] == [caption.text for _, caption in captions]
    for row, (image, caption) in zip(by_caption, captions, strict=True):
        similarity = {i: scores(galleries, i, int(caption.caption_id)) for i in range(len(records))}
        assert row["rank"] == 1 + best_rank(similarity, {image})
        assert row["true_id"] == str(image)
        assert row["similarity"] == pytest.approx(similarity[image])
        assert row["first_similarity"] == pytest.approx(max(similarity.values()))
        assert row["first_id"] == str(max(i for i, score in similarity.items() if score == max(similarity.values())))
    assert all(owner[row["true_id"]] == int(row["query_id"]) for row in by_image)


def test_hubs_are_corrected_in_both_directions(tmp_path: Path) -> None:
    records = records_of([[f"{c} of {image}" for c in range(1 + image % 3)] for image in range(30)])
    captions = sum(len(record.captions) for record in records)
    biases = Biases(torch.arange(30) % 7 / 2, torch.arange(captions) % 5 / 2)
    galleries = [replace(coarse_gallery(records, 2 - seed, 3, seed), biases=biases) for seed in range(2)]
    embedded = Embedded(galleries, "dev", tmp_path)
    assert embedded.is_corrected
    found = corrected_retrieval(embedded, 1)
    rows = pyarrow.parquet.read_table(tmp_path / "corrected_queries.parquet").to_pylist()
    owners = [image for image, record in enumerate(records) for _ in record.captions]
    for row in rows:
        query = int(row["query_id"])
        if row["direction"] == "i2t":
            scored = {c: scores(galleries, query, c) - c % 5 / 2 for c in range(captions)}
            rank = best_rank(scored, {c for c in range(captions) if owners[c] == query})
        else:
            rank = best_rank({i: scores(galleries, i, query) - i % 7 / 2 for i in range(30)}, {owners[query]})
        assert row["rank"] == rank + 1
    first = [row["rank"] == 1 for row in rows if row["direction"] == "i2t"]
    assert found.metrics["i2t_r01_corrected"] == pytest.approx(100 * np.mean(first))
    assert found.metrics["rsum_corrected_low"] < found.metrics["rsum_corrected"] < found.metrics["rsum_corrected_high"]


@pytest.mark.parametrize(("name", "folds"), [("coco_1k", 5), ("coco_5k", 1)])
def test_a_published_split_is_ranked_in_its_folds(
    name: str, folds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RETRIEVAL_PROTOCOLS, name, PublishedProtocol("COCO", (20,), 5, RETRIEVAL_PROTOCOLS[name].folds))
    records = records_of([[f"{c} of {image}" for c in range(5)] for image in range(20)])
    gallery = coarse_gallery(records, 1, 4, 0)
    found = RANKINGS[name](Embedded([gallery], "test", tmp_path, (1, 5)))
    expected = rank_retrieval([(gallery.images_BKD, gallery.texts_CD)], 5, (folds,))[folds].result().as_dict()
    assert {key: found.metrics[f"{name}/{key}"] for key in expected} == expected
    assert found.files[0].name == f"{name}_queries.parquet"
    ranks = pyarrow.parquet.read_table(found.files[0])["rank"].to_numpy()
    assert ranks[:20].max() <= 100 // folds


@pytest.mark.parametrize(
    ("name", "counts", "message"),
    [
        ("flickr8k_1k", [5] * 999, "Flickr8k 1K is retrieval among 1,000 images, here are 999"),
        ("flickr30k_1k", [5] * 1014, "Flickr30K 1K is retrieval among 1,000 images, here are 1,014"),
        ("coco_5k", [5] * 1000, "COCO 5K is retrieval among 5,000 images, here are 1,000"),
        ("coco_1k", [5] * 4999 + [6], r"takes 5 captions of each image, but image 4999 \(counted from 0\) has 6"),
        ("msr_vtt", [20] * 1000, "MSR-VTT is retrieval among 2,990 or 497 videos, here are 1,000"),
        ("vatex", [10] * 3000, "VATEX is retrieval among 1,500 videos, here are 3,000"),
    ],
)
def test_a_name_is_not_given_to_another_split(name: str, counts: list[int], message: str) -> None:
    with pytest.raises(StageError, match=f"protocol {name}, split 'dev': .*{message}"):
        require_published(("retrieval", "cxc", name), "dev", counts)


@pytest.mark.parametrize(("seed", "views"), [(0, 1), (1, 3), (2, 1)])
def test_videos_share_sentences(seed: int, views: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    # Few sentences: many belong to several videos, some twice to one.
    videos = [[f"sentence {n}" for n in rng.integers(0, 14, 4)] for _ in range(9)]
    galleries = [coarse_gallery(records_of(videos), views, 3, seed), coarse_gallery(records_of(videos), 1, 2, seed + 5)]
    found = RANKINGS["msr_vtt"](Embedded(galleries, "test", tmp_path))

    sentences = list(dict.fromkeys(text for texts in videos for text in texts))
    flat = [text for texts in videos for text in texts]
    similarity = [[scores(galleries, video, flat.index(text)) for text in sentences] for video in range(len(videos))]
    v2t = [
        best_rank(dict(enumerate(similarity[video])), {sentences.index(text) for text in texts})
        for video, texts in enumerate(videos)
    ]
    t2v = [
        best_rank(
            {video: similarity[video][place] for video in range(len(videos))},
            {video for video, texts in enumerate(videos) if text in texts},
        )
        for place, text in enumerate(sentences)
    ]
    rows = pyarrow.parquet.read_table(tmp_path / "msr_vtt_queries.parquet").to_pylist()
    for way, ranks in (("v2t", v2t), ("t2v", t2v)):
        assert [row["rank"] - 1 for row in rows if row["direction"] == way] == ranks
        assert found.metrics[f"msr_vtt/{way}_median_rank"] == np.median(ranks) + 1
        assert found.metrics[f"msr_vtt/{way}_mean_rank"] == pytest.approx(np.mean(ranks) + 1)
    recalls = [100 * np.mean([rank < k for rank in ranks]) for ranks in (v2t, t2v) for k in (1, 5, 10)]
    assert found.metrics["msr_vtt/rsum"] == pytest.approx(sum(recalls))
    assert found.metrics["msr_vtt/sentences"] == len(sentences)


def test_sentences_of_a_video_are_drawn_together(tmp_path: Path) -> None:
    """Oracle: the sentences of a video are equal but for their text, so that more of them tell nothing new."""
    once, often = (records_of([[f"{c} of {video}" for c in range(count)] for video in range(40)]) for count in (1, 20))
    single = coarse_gallery(once, 1, 3, 0)
    copied = Gallery(single.images, single.texts_CD.repeat_interleave(20, dim=0), often)
    (tmp_path / "copied").mkdir()
    (expected, found) = (
        RANKINGS["msr_vtt"](Embedded([gallery], "test", folder)).metrics
        for gallery, folder in ((single, tmp_path), (copied, tmp_path / "copied"))
    )
    for name in ("t2v_r01_low", "t2v_r01_high", "t2v_r10_low", "t2v_r10_high"):
        assert found[f"msr_vtt/{name}"] == pytest.approx(expected[f"msr_vtt/{name}"])
    assert expected["msr_vtt/t2v_r10_low"] < expected["msr_vtt/t2v_r10"] < expected["msr_vtt/t2v_r10_high"]


def test_different_sentences() -> None:
    first, sentence = different(["a", "b", "a", "c", "b"])
    assert first.tolist() == [0, 1, 3]
    assert sentence.tolist() == [0, 1, 0, 2, 1]

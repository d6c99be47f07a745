"""Indices find what comparing everything finds, or say how much of it; a stored one belongs to one gallery."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pipelines.retrieval import faiss_index
from pipelines.retrieval.faiss_index import GalleryError, GalleryIndex, ItemIndex, Kind, Sample
from vse_core.digests import DigestError, write_digests

ORIGIN = {"model": "abc", "gallery": "def"}


def unit(*shape: int, seed: int = 0) -> Tensor:
    return nn.functional.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def best(queries_QVD: Tensor, items_BKD: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best items of each query, by loops: the largest of the inner products of all pairs of views."""
    similarities, places = [], []
    for query_VD in queries_QVD:
        scores = torch.tensor([max(float(q @ v) for q in query_VD for v in item_KD) for item_KD in items_BKD])
        order = scores.argsort(descending=True)[:k]
        similarities.append(scores[order].numpy())
        places.append(order.numpy())
    return np.stack(similarities), np.stack(places)


@pytest.mark.parametrize(("item_views", "query_views"), [(1, 1), (3, 1), (1, 3), (3, 2)])
@pytest.mark.parametrize("kind", ["exact", "approximate"])
def test_the_nearest_are_found_by_the_best_of_their_views(kind: Kind, item_views: int, query_views: int) -> None:
    """So few items that the graph leads to all of them."""
    items_BKD, queries_QVD = unit(40, item_views, 8), unit(5, query_views, 8, seed=1)
    index = ItemIndex.build(items_BKD, Sample(queries_QVD, "made"), kind)
    similarities, places = best(queries_QVD, items_BKD, 7)
    for found, expected, where in zip(index.search(queries_QVD, 7), similarities, places, strict=True):
        assert found.indices.tolist() == where.tolist()
        np.testing.assert_allclose(found.scores, expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["exact", "approximate"])
def test_a_corrected_index_ranks_by_similarity_less_bias(kind: Kind) -> None:
    items_BKD, queries_QVD, bias_B = unit(40, 2, 8), unit(5, 1, 8, seed=1), torch.linspace(0.5, 0.9, 40)
    index = ItemIndex.build(items_BKD, Sample(queries_QVD, "made"), kind, bias_B)
    assert index.facts.dim == 8
    assert index.facts.recall == 1
    cases = [(bias_B, index.search(queries_QVD, 7)), (0, index.search(queries_QVD, 7, is_corrected=False))]
    for bias, found, query_VD in (
        (bias, *pair) for bias, all_ in cases for pair in zip(all_, queries_QVD, strict=True)
    ):
        expected = ((items_BKD @ query_VD[0]).amax(dim=1) - bias).topk(7)
        assert found.indices.tolist() == expected.indices.tolist()
        np.testing.assert_allclose(found.scores, expected.values.numpy(), atol=1e-5)


def test_views_of_one_image_that_outdo_all_others_are_one_result() -> None:
    """The first six vectors are views of two images: asking for as many vectors as results would find two only."""
    query_1D = unit(1, 8)
    far_BKD = -query_1D + 0.5 * unit(10, 3, 8)
    items_BKD = nn.functional.normalize(torch.cat([query_1D.expand(2, 3, 8), far_BKD]), dim=-1)
    (found,) = ItemIndex.build(items_BKD, Sample(query_1D.unsqueeze(1), "made"), "exact").search(
        query_1D.unsqueeze(1), 4
    )
    assert len(found.indices) == 4
    assert set(found.indices[:2].tolist()) == {0, 1}


@pytest.mark.parametrize("kind", ["exact", "approximate"])
def test_more_than_there_is_gives_all(kind: Kind) -> None:
    items_BKD, queries_QVD = unit(6, 2, 8), unit(3, 1, 8, seed=1)
    found = ItemIndex.build(items_BKD, Sample(queries_QVD, "made"), kind).search(queries_QVD, 100)
    assert [sorted(each.indices.tolist()) for each in found] == [list(range(6))] * 3


@pytest.mark.parametrize("limit", [0, 6])
def test_a_gallery_without_captions_finds_none(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faiss_index, "_EXACT_VECTORS", limit)
    index = GalleryIndex.build(unit(6, 1, 8), torch.empty(0, 8))
    assert index.images.facts.kind == "exact"
    assert [len(found.indices) for found in index.captions.search(unit(2, 1, 8), 5)] == [0, 0]


def test_an_approximate_index_says_what_it_misses() -> None:
    """Vectors without structure are the hardest: what is said is what a loop over the same queries counts."""
    items_BKD, queries_QVD = unit(3000, 1, 48), unit(200, 1, 48, seed=1)
    index = ItemIndex.build(items_BKD, Sample(queries_QVD, "made"), "approximate")
    truth = (queries_QVD[:, 0] @ items_BKD[:, 0].T).topk(10).indices
    found = index.search(queries_QVD, 10)
    hits = [len(set(each.indices.tolist()) & set(row.tolist())) for each, row in zip(found, truth, strict=True)]
    assert index.facts.recall == pytest.approx(sum(hits) / 2000, abs=1e-4)
    assert index.facts.recall >= 0.9
    assert index.facts.candidates in (64, 128, 256, 512, 1024)


def test_an_index_is_exact_until_there_are_many_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faiss_index, "_EXACT_VECTORS", 12)
    facts = GalleryIndex.build(unit(6, 3, 8), unit(12, 8)).facts()
    assert {name: each.kind for name, each in facts.items()} == {"images": "approximate", "captions": "exact"}


@pytest.mark.parametrize(("limit", "kind"), [(40, "exact"), (39, "approximate")])
def test_an_index_comes_back_as_it_was_saved(
    limit: int, kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faiss_index, "_EXACT_VECTORS", limit)
    built = GalleryIndex.build(unit(20, 2, 8), unit(40, 8))
    assert built.images.facts.kind == built.captions.facts.kind == kind
    built.save(tmp_path, ORIGIN)
    loaded = GalleryIndex.load(tmp_path, ORIGIN)
    assert loaded.facts() == built.facts()
    queries_QVD = unit(4, 1, 8, seed=1)
    for before, after in ((built.images, loaded.images), (built.captions, loaded.captions)):
        for one, other in zip(before.search(queries_QVD, 5), after.search(queries_QVD, 5), strict=True):
            assert one.indices.tolist() == other.indices.tolist()


def test_an_index_of_the_time_before_corrections_is_read(tmp_path: Path) -> None:
    GalleryIndex.build(unit(6, 1, 8), unit(12, 8)).save(tmp_path, ORIGIN)
    content = json.loads((tmp_path / "index.json").read_text())
    for items in ("images", "captions"):
        del content[items]["is_corrected"]
    (tmp_path / "index.json").write_text(json.dumps(content))
    write_digests(tmp_path)
    assert not GalleryIndex.load(tmp_path, ORIGIN).images.facts.is_corrected


def test_an_index_of_another_gallery_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    GalleryIndex.build(unit(6, 1, 8), unit(12, 8)).save(tmp_path, ORIGIN)
    with pytest.raises(GalleryError, match="built from another gallery"):
        GalleryIndex.load(tmp_path, {**ORIGIN, "gallery": "xyz"})
    for name in ("captions.faiss", "index.json"):
        GalleryIndex.build(unit(6, 1, 8), unit(12, 8)).save(tmp_path, ORIGIN)
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-4])
        with pytest.raises(DigestError, match=rf"{name} is damaged"):
            GalleryIndex.load(tmp_path, ORIGIN)
    (tmp_path / "index.json").write_text("{}")
    write_digests(tmp_path)
    with pytest.raises(GalleryError, match="cannot be read"):
        GalleryIndex.load(tmp_path, ORIGIN)
    (tmp_path / "index.json").unlink()
    with pytest.raises(DigestError, match=r"index\.json is missing"):
        GalleryIndex.load(tmp_path, ORIGIN)

"""Small vectors find what they should by loops of one's own, are fitted to training vectors, and say what they lose."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pipelines.retrieval import faiss_index
from pipelines.retrieval.correction import Correction
from pipelines.retrieval.faiss_index import GalleryError, GalleryIndex, ItemIndex, Kind, Sample
from pipelines.retrieval.gallery import Biases, Gallery
from pipelines.schema.compression import Compression
from pipelines.stages.index.run import gallery_rsum, index_rsum
from preprocessing.datasets.record import Caption, Record
from vse_core.digests import write_digests

DIM = 24


def made(*shape: int, seed: int = 0) -> Tensor:
    """Unit vectors that lie near a subspace, around a mean that is not 0, as those of models do."""
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(6, DIM, generator=torch.Generator().manual_seed(99))
    near = torch.randn(*shape, 6, generator=generator) @ base + 0.2 * torch.randn(*shape, DIM, generator=generator)
    return nn.functional.normalize(near + 2 * base[0], dim=-1)


def projection(fitted_ND: Tensor, components: int) -> Tensor:
    """The directions of largest second moment, by NumPy's decomposition."""
    _, vectors = np.linalg.eigh(fitted_ND.double().T.numpy() @ fitted_ND.double().numpy())
    return torch.from_numpy(vectors[:, ::-1][:, :components].copy()).float()


@pytest.mark.parametrize(
    ("name", "width", "number"),
    [("pca128-int8", 128, "int8"), ("pca7", 7, "float32"), ("pca64-float16", 64, "float16"), ("int8", None, "int8")],
)
def test_forms_are_read(name: str, width: int | None, number: str) -> None:
    assert Compression.parse(name) == Compression(width, number)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "pca", "pca0", "pca1", "pca12-int4", "int8-pca12", "PCA12", "pca-int8", "x"])
def test_other_forms_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a compression: write pca128-int8"):
        Compression.parse(name)


@pytest.mark.parametrize("kind", ["exact", "approximate"])
@pytest.mark.parametrize("is_corrected", [False, True])
@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("width", [9, 16])
def test_fewer_dimensions_are_the_principal_components_of_training(
    kind: Kind, is_corrected: bool, views: int, width: int
) -> None:
    """One dimension is the bias's; 9 is no multiple of 16, so zeros fill up."""
    items_BKD, queries_QVD, fitted_ND = made(60, views), made(8, 2, seed=1), made(400, seed=2)
    bias_B = torch.linspace(0.5, 0.9, 60) if is_corrected else None
    index = ItemIndex.build(
        items_BKD, Sample(queries_QVD, "made"), kind, bias_B, f"pca{width}", Sample(fitted_ND.unsqueeze(1), "400 made")
    )
    directions = projection(fitted_ND, width - is_corrected)
    scores = torch.einsum("qvd,bkd->qbvk", queries_QVD @ directions, items_BKD @ directions).amax(dim=(2, 3))
    scores = scores - bias_B if bias_B is not None else scores
    full = torch.einsum("qvd,bkd->qbvk", queries_QVD, items_BKD).amax(dim=(2, 3))
    full = full - bias_B if bias_B is not None else full
    kept = 0
    for found, expected, truth in zip(index.search(queries_QVD, 10), scores, full, strict=True):
        best = expected.topk(10)
        assert found.indices.tolist() == best.indices.tolist()
        np.testing.assert_allclose(found.scores, best.values, atol=1e-4)
        kept += len(set(found.indices.tolist()) & set(truth.topk(10).indices.tolist()))
    assert index.facts.recall == pytest.approx(kept / 80, abs=1e-4)
    assert index.facts.fitted_to == "400 made"


@pytest.mark.parametrize("images", [2, 5, 8])
def test_duplicates_have_no_more_dimensions_than_there_are(images: int) -> None:
    """Half of the vectors are those of the others; all of their dimensions are kept, so that no product changes."""
    items_BKD = made(images, 1).repeat(2, 1, 1)
    queries_QVD = items_BKD[:images]
    index = ItemIndex.build(items_BKD, Sample(queries_QVD, "the images"), "exact", None, f"pca{2 * images}")
    for found, query_VD in zip(index.search(queries_QVD, 2 * images), queries_QVD, strict=True):
        np.testing.assert_allclose(found.scores, items_BKD[found.indices, 0] @ query_VD[0], atol=1e-5)


@pytest.mark.parametrize(("number", "step"), [("int8", 1 / 255), ("float16", 2**-10)])
def test_smaller_numbers_differ_by_a_step_at_most(number: str, step: float) -> None:
    items_BKD, queries_QVD, bias_B = made(60, 1), made(8, 1, seed=1), torch.linspace(0.5, 0.9, 60)
    index = ItemIndex.build(items_BKD, Sample(queries_QVD, "made"), "exact", bias_B, number)
    kept_BKW = index.kept_items()
    full = torch.cat([items_BKD[:, 0], -bias_B.unsqueeze(1)], dim=1)
    width = full.amax(dim=0) - full.amin(dim=0) if number == "int8" else torch.ones(DIM + 1)
    assert ((kept_BKW[:, 0, : DIM + 1] - full).abs() <= step * width + 1e-6).all()
    assert index.vectors.sa_code_size() == (1 if number == "int8" else 2) * 32
    assert torch.equal(index.kept_items(torch.tensor([7, 3])), kept_BKW[[7, 3]])
    scores = queries_QVD[:, 0] @ kept_BKW[:, 0, :DIM].T + kept_BKW[:, 0, DIM]
    for found, expected in zip(index.search(queries_QVD, 5), scores, strict=True):
        np.testing.assert_allclose(found.scores, expected.topk(5).values, atol=1e-4)


def bank(images: int = 50, captions: int = 90) -> Correction:
    return Correction(made(images, 1, seed=3), made(captions, seed=4), 0.1, "learned in training")


def test_a_gallery_is_fitted_to_the_bank_or_to_itself() -> None:
    images_BKD, texts_CD = made(30, 1), made(60, seed=1)
    facts = GalleryIndex.build(images_BKD, texts_CD, None, "pca8-int8", bank()).facts()
    assert {each.fitted_to for each in facts.values()} == {"50 images and 90 captions of training"}
    assert (facts["images"].measured_with, facts["captions"].measured_with) == ("the captions", "the images")
    alone = GalleryIndex.build(images_BKD, texts_CD[:0], None, "pca8", bank()).facts()["images"]
    assert (alone.fitted_to, alone.measured_with) == ("50 images and 90 captions of training", "captions of training")
    bare = GalleryIndex.build(images_BKD, texts_CD[:0], None, "pca8").facts()["images"]
    assert (bare.fitted_to, bare.measured_with) == ("the images themselves", "the images themselves")
    assert "fitted to the images themselves, with recall" in str(bare)


@pytest.mark.parametrize(("name", "message"), [("pca25", "have 24 dimensions"), ("pca20", "6 vectors are too few")])
def test_what_cannot_be_fitted_is_refused(name: str, message: str) -> None:
    with pytest.raises(GalleryError, match=message):
        GalleryIndex.build(made(6, 1), torch.empty(0, DIM), None, name)


@pytest.mark.parametrize("compression", ["", "pca8-int8"])
def test_large_galleries_of_images_alone_have_a_graph_or_lists(
    compression: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(faiss_index, "_EXACT_IMAGES", 299)
    images_BKD, queries_QVD = made(700, 1), made(40, 1, seed=5)
    bias_B = torch.rand(700, generator=torch.Generator().manual_seed(1)) / 5
    biases = Biases(bias_B, torch.empty(0))
    for most, said in ((1000, "approximate (HNSW)"), (299, "approximate (inverted lists)")):
        monkeypatch.setattr(faiss_index, "_MOST_IN_GRAPH", most)
        index = GalleryIndex.build(images_BKD, torch.empty(0, DIM), biases, compression, bank())
        assert str(index.images.facts).startswith(said)
        index.save(tmp_path, {})
        loaded = GalleryIndex.load(tmp_path, {}).images
        kept = loaded.kept_items()[:, 0] @ loaded.kept_queries(queries_QVD)[:, 0].T
        found = loaded.search(queries_QVD, 10)
        hits = [
            len(set(each.indices) & set(truth.tolist()))
            for each, truth in zip(found, kept.T.topk(10).indices, strict=True)
        ]
        assert sum(hits) / 400 >= 0.97
        full = images_BKD[:, 0] @ bank().texts_MD.T - bias_B.unsqueeze(1)
        own = loaded.search(bank().texts_MD.unsqueeze(1), 10)
        hits = [
            len(set(each.indices) & set(truth.tolist()))
            for each, truth in zip(own, full.T.topk(10).indices, strict=True)
        ]
        assert loaded.facts.recall == pytest.approx(sum(hits) / 900, abs=1e-3)
        assert loaded.facts.recall >= (0.97 if not compression else 0.5)


def test_an_index_of_a_version_without_forms_is_read(tmp_path: Path) -> None:
    GalleryIndex.build(made(6, 1), made(12)).save(tmp_path, {})
    content = json.loads((tmp_path / "index.json").read_text())
    for items in ("images", "captions"):
        for key in ("is_corrected", "lists", "compression", "fitted_to", "measured_with"):
            del content[items][key]
    (tmp_path / "index.json").write_text(json.dumps(content))
    write_digests(tmp_path)
    loaded = GalleryIndex.load(tmp_path, {})
    assert str(loaded.images.facts) == "exact"
    assert len(loaded.images.search(made(1, 1), 3)[0].indices) == 3


def formed(form: str, items_BKD: Tensor, queries_QVD: Tensor, monkeypatch: pytest.MonkeyPatch) -> ItemIndex:
    monkeypatch.setattr(faiss_index, "_MOST_IN_GRAPH", 10 if form == "lists" else 10_000)
    return ItemIndex.build(items_BKD, Sample(queries_QVD, "made"), "exact" if form == "exact" else "approximate")


@pytest.mark.parametrize("form", ["exact", "graph", "lists"])
@pytest.mark.parametrize("share", [0.03, 0.5])
@pytest.mark.parametrize("views", [1, 2])
def test_among_some_the_nearest_are_those_of_brute_force(
    form: str, share: float, views: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    items_BKD, queries_QVD = made(900, views), made(30, 1, seed=6)
    index = formed(form, items_BKD, queries_QVD, monkeypatch)
    among_B = np.random.default_rng(0).random(900) < share
    scores = torch.einsum("qvd,bkd->qbvk", queries_QVD, items_BKD).amax(dim=(2, 3))
    scores[:, ~torch.from_numpy(among_B)] = -2
    for found, expected in zip(index.search(queries_QVD, 10, among_B), scores.topk(10).indices, strict=True):
        assert found.indices.tolist() == expected.tolist()
    few = np.arange(900) == 17
    assert [each.indices.tolist() for each in index.search(queries_QVD, 10, few)] == [[17]] * 30
    assert [len(each.indices) for each in index.search(queries_QVD, 10, ~few & few)] == [0] * 30


@pytest.mark.parametrize("form", ["graph", "lists"])
def test_a_condition_that_holds_for_what_is_far_from_the_query_finds_the_nearest_of_that(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Photographs of another year or folder show something else: neither the graph nor the lists lead there."""
    centre_D = torch.eye(DIM)[0]
    clusters = [nn.functional.normalize(sign * centre_D + made(1000, 1) / 4, dim=-1) for sign in (1, -1)]
    items_BKD, queries_QVD = torch.cat(clusters), clusters[0][:30]
    index = formed(form, items_BKD, queries_QVD, monkeypatch)
    is_far = np.arange(2000) >= 1000
    expected = (queries_QVD[:, 0] @ clusters[1][:, 0].T).topk(10).indices + 1000
    for found, places in zip(index.search(queries_QVD, 10, is_far), expected, strict=True):
        assert found.indices.tolist() == places.tolist()


@pytest.mark.parametrize("form", ["graph", "lists"])
@pytest.mark.parametrize("k", [300, 900])
def test_many_hits_are_as_many_as_are_asked_for(form: str, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lists that the first ten take hold fewer."""
    items_BKD, queries_QVD = made(900, 1), made(30, 1, seed=6)
    index = formed(form, items_BKD, queries_QVD, monkeypatch)
    found = index.search(queries_QVD, k)
    assert [len(set(each.indices.tolist())) for each in found] == [k] * 30
    expected = (queries_QVD[:, 0] @ items_BKD[:, 0].T).topk(k).indices
    assert sum(len(set(each.indices) & set(row.tolist())) for each, row in zip(found, expected, strict=True)) > 27 * k


def test_rsum_compares_what_is_kept_with_queries_that_are_not() -> None:
    records = tuple(
        Record(str(image), "", "dev", tuple(Caption(f"{image}-{c}", "") for c in range(2))) for image in range(25)
    )
    images_BKD, texts_CD = made(25, 2), made(50, seed=7)
    random = torch.Generator().manual_seed(8)
    biases = Biases(torch.rand(25, generator=random) / 9, torch.rand(50, generator=random) / 9)
    gallery = Gallery(images_BKD, texts_CD, records, biases)
    index = GalleryIndex.build(images_BKD, texts_CD, biases, "pca6-int8", bank())

    def rsum(to_images_CB: Tensor, to_captions_BC: Tensor) -> float:
        total = 0.0
        for c, row in enumerate(to_images_CB):
            rank = int((row > row[c // 2]).sum())
            total += sum(100 * (rank < k) for k in (1, 5, 10)) / 50
        for b, row in enumerate(to_captions_BC):
            rank = min(int((row > row[2 * b + place]).sum()) for place in range(2))
            total += sum(100 * (rank < k) for k in (1, 5, 10)) / 25
        return total

    full_BC = torch.einsum("bkd,cd->bck", images_BKD, texts_CD).amax(dim=2)
    assert gallery_rsum(gallery) == pytest.approx(rsum(full_BC.T - biases.images_B, full_BC - biases.texts_C), abs=1e-3)

    def found(index: ItemIndex, queries_QVD: Tensor, items: int) -> Tensor:
        scores = torch.empty(len(queries_QVD), items)
        for row, each in zip(scores, index.search(queries_QVD, items), strict=True):
            row[torch.from_numpy(each.indices)] = torch.from_numpy(each.scores)
        return scores

    kept = found(index.images, texts_CD.unsqueeze(1), 25), found(index.captions, images_BKD, 50)
    assert index_rsum(index, gallery) == pytest.approx(rsum(*kept), abs=1e-3)
    assert index_rsum(index, gallery) != gallery_rsum(gallery)

"""Shards of graphs next to shards of features: the same keys and captions, nothing lost, the same bytes every time."""

from pathlib import Path

import pytest
from spacy.language import Language

from preprocessing.captions.graph_shards import (
    GraphCounts,
    ParseSpec,
    counts_path,
    parse_shard,
    read_captions,
    read_counts,
)
from preprocessing.captions.pipeline import load_pipeline
from preprocessing.captions.scene_graph import tree
from preprocessing.captions.scene_graph.parse import extract_graph, parse_captions
from preprocessing.captions.scene_graph.tree import TreeReader
from preprocessing.shards.index import ShardError, read_index, verify_shard
from preprocessing.shards.writer import Sample, write_shard

TEXTS = [
    ["A brown dog runs on the beach .", "two dogs"],
    ["😀 !!", "A man holds a red umbrella ."],
    ["\x00\x01", "man " * 2000, "ein Hund läuft über die Wiese"],
]


@pytest.fixture(scope="module")
def nlp() -> Language:
    return load_pipeline()


@pytest.fixture
def features(tmp_path: Path) -> Path:
    path = tmp_path / "features" / "shard-00000.tar"
    path.parent.mkdir()
    samples = [
        Sample(
            f"{number:08d}",
            {},
            {
                "image_id": f"image {number}",
                "image": f"{number}.jpg",
                "split": "train",
                "captions": [{"caption_id": f"{number}#{c}", "text": text} for c, text in enumerate(texts)],
            },
        )
        for number, texts in enumerate(TEXTS)
    ]
    write_shard(path, samples, "features")
    return path


def parsed(folder: Path, features: Path, nlp: Language) -> tuple[Path, GraphCounts]:
    folder.mkdir()
    path = folder / features.name
    return path, parse_shard(ParseSpec(path, features, "graphs"), nlp, 2)


def test_every_caption_keeps_its_place(tmp_path: Path, features: Path, nlp: Language) -> None:
    path, counts = parsed(tmp_path / "graphs", features, nlp)
    index = verify_shard(path, deep=True)
    assert index.keys == read_index(features).keys
    assert index.fingerprint == "graphs"
    images = list(read_captions(path.parent))
    assert [[(caption.image_id, caption.caption_id) for caption in captions] for captions in images] == [
        [(f"image {number}", f"{number}#{c}") for c in range(len(texts))] for number, texts in enumerate(TEXTS)
    ]
    assert [thing.lemma for thing in images[0][1].graph.objects] == ["dog"]
    assert counts.captions == 7
    assert counts.problems.total() >= 4
    assert counts == read_counts(path)


def test_lemmas_are_those_of_the_lemmatizer(nlp: Language) -> None:
    texts = ["Two men are running .", "men ran", "They're men who run .", "Two men are running ."]
    graphs = [extract_graph(TreeReader().read(doc)) for doc in nlp.pipe(texts)]
    assert [caption.graph for caption in parse_captions(nlp, texts)] == graphs
    assert [thing.lemma for graph in graphs for thing in graph.objects] == ["man"] * 4


def test_a_reader_forgets_words_before_they_are_too_many(nlp: Language, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_MOST_WORDS", 3)
    reader, texts = TreeReader(), ["Two men are running .", "A dog sees a red ball ."]
    for doc in nlp.pipe(texts):
        assert extract_graph(reader.read(doc)) == extract_graph(TreeReader().read(doc))
        assert len(reader._known) <= 3


def test_bytes_depend_on_the_captions_alone(tmp_path: Path, features: Path, nlp: Language) -> None:
    paths = [parsed(tmp_path / name, features, nlp)[0] for name in ("one", "two")]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert counts_path(paths[0]).read_bytes() == counts_path(paths[1]).read_bytes()


def test_a_damaged_feature_shard_is_named(tmp_path: Path, features: Path, nlp: Language) -> None:
    features.write_bytes(features.read_bytes()[:-512])
    with pytest.raises(ShardError, match="cut short"):
        parsed(tmp_path / "graphs", features, nlp)

"""The shipped English pipeline: its size, its accuracy on the treebank and on captions, what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from preprocessing.captions.english.train import evaluate
from preprocessing.captions.english.treebank import read_conllu
from preprocessing.captions.pipeline import PipelineError, load_pipeline
from tests.preprocessing.captions.captions_gold import read_gold_captions

if TYPE_CHECKING:
    from spacy.language import Language

MODEL = Path(sys.modules["preprocessing.captions"].__file__ or "").parent / "english" / "model"

# A point or two under what evaluation.json reports: for other versions of spaCy and NumPy, not for a worse model.
EWT_FLOORS = {
    "unlabelled_attachment": 83.0,
    "labelled_attachment": 79.0,
    "universal_tags": 92.5,
    "penn_tags": 91.5,
    "lemmas": 94.0,
}
CAPTION_FLOORS = {
    "unlabelled_attachment": 92.5,
    "labelled_attachment": 91.0,
    "universal_tags": 95.5,
    "penn_tags": 96.5,
}


@pytest.fixture(scope="module")
def nlp() -> Language:
    return load_pipeline()


def parse(nlp: Language, text: str) -> list[tuple[str, str, str, str, str]]:
    return [(token.lower_, token.pos_, token.lemma_, token.head.lower_, token.dep_) for token in nlp(text)]


def test_files() -> None:
    """Small enough for git, and nothing in it that runs when it is read."""
    files = [path for path in MODEL.rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in files) < 15_000_000
    assert not [path for path in files if path.suffix in {".pkl", ".pickle", ".pt", ".py", ".so"}]
    # A pickle of protocol 2 or later begins with these two bytes.
    assert not [path for path in files if path.read_bytes()[:2] in {b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"}]


def test_licence_is_named(nlp: Language) -> None:
    assert nlp.meta["license"] == "CC BY-SA 4.0"
    assert [source["name"] for source in nlp.meta["sources"]] == [
        "Universal Dependencies English Web Treebank (UD_English-EWT)"
    ]


def test_import_is_light() -> None:
    code = "import sys, preprocessing.captions.scene_graph; assert 'spacy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_treebank(nlp: Language, vse_data: Path) -> None:
    path = vse_data / "ud_english_ewt" / "dev.conllu.gz"
    if not path.is_file():
        pytest.skip(f"no English Web Treebank at {path}")
    sentences = Random(0).sample(list(read_conllu(path)), 400)
    assert_above(evaluate(nlp, sentences), EWT_FLOORS)


def test_gold_captions(nlp: Language, vse_data: Path) -> None:
    captions = read_gold_captions(vse_data / "flickr8k" / "Flickr8k.token.txt")
    assert len(captions) == 80
    for from_text in (False, True):
        measured = evaluate(nlp, captions, from_text=from_text)
        measured.pop("lemmas", None)  # the annotation has none
        assert_above(measured, CAPTION_FLOORS)


def assert_above(measured: dict[str, float], floors: dict[str, float]) -> None:
    assert measured.keys() == floors.keys()
    assert not {name: value for name, value in measured.items() if value < floors[name]}


def test_unknown_pipelines(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"no spaCy pipeline 'en_of_nowhere'.*leave the name out"):
        load_pipeline("en_of_nowhere")
    with pytest.raises(PipelineError, match="no spaCy pipeline"):
        load_pipeline(str(tmp_path))


def test_pipelines_that_cannot_parse(tmp_path: Path) -> None:
    import spacy

    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(PipelineError, match="has no tagger, parser, lemmatizer"):
        load_pipeline(str(tmp_path / "blank"))


def test_saved_pipelines_load_by_their_folder(nlp: Language, tmp_path: Path) -> None:
    nlp.to_disk(tmp_path / "copy")
    assert parse(load_pipeline(str(tmp_path / "copy")), "a dog runs") == parse(nlp, "a dog runs")

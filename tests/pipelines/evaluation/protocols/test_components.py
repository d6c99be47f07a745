"""Images retrieved by the labels of detections: labels of any number of words are nouns with what describes them."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from pipelines.config import load_config
from pipelines.evaluation.protocols.components import components
from pipelines.kinds.component_embedder import ComponentEmbedder, Phrase
from preprocessing.captions.vocabulary import Vocabulary
from vse_core.models import build_model
from vse_core.models.unified import UnifiedModel

LABELS = [["dog", "hot dog"], ["dining room table"], ["old remote control car", "dog"]]


class Texts:
    """A text encoder that takes note of its phrases; each is most similar to the image of the same number."""

    components = None
    as_read = staticmethod(lambda graph: graph)

    def __init__(self) -> None:
        self.phrases: list[Phrase] = []

    def embed_phrases(self, phrases: list[Phrase]) -> torch.Tensor:
        self.phrases = phrases
        return torch.eye(len(LABELS))[torch.tensor([0, 0, 1, 2])]


def test_labels_of_many_words_are_no_relations() -> None:
    texts = Texts()
    inputs = SimpleNamespace(
        captions=[[] for _ in LABELS],
        detections=LABELS,
        texts=texts,
        gallery=SimpleNamespace(images_BKD=torch.eye(3).unsqueeze(1)),
        reader=SimpleNamespace(is_image_files=False, features=lambda _: torch.zeros(4, 1)),
    )
    found = components(cast("Any", inputs)).metrics
    assert texts.phrases == [("dog",), ("hot", "dog"), ("dining room", "table"), ("old remote control", "car")]
    # "dog" is in images 0 and 2: found at ranks 1 and, of equals, last.
    assert found["components/detected_objects_map"] == 100 * ((1 + 2 / 3) / 2 + 3) / 4


def test_univse_reads_the_last_word_of_what_describes_a_noun() -> None:
    words = ["<pad>", "<start>", "<end>", "<unk>", "dining", "room", "table"]
    vocabulary = Vocabulary(words)
    model = build_model(
        4,
        len(vocabulary),
        8,
        {"name": "regions", "pooling": {"name": "kmax", "k": 10}},
        {"name": "components", "word_dim": 6},
    )
    assert isinstance(model, UnifiedModel)
    embedder = ComponentEmbedder(model, vocabulary, None)
    found, expected = (embedder.embed_phrases([(word, "table")]) for word in ("dining room", "room"))
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("surface", "phrases"),
    [
        (False, [("dog",), ("field",), ("small", "dog"), ("dog", "run in", "field")]),
        (True, [("dogs",), ("field",), ("smaller", "dogs"), ("dogs", "running in", "field")]),
    ],
)
def test_components_are_in_base_forms_or_in_the_words_of_the_sentence(surface: bool, phrases: list[Phrase]) -> None:
    vocabulary = Vocabulary.build(["smaller dogs running in the field dog small run"], 1)
    text = {"name": "components", "word_dim": 6, "relations": "words", "surface_words": surface}
    model = build_model(4, len(vocabulary), 8, {"name": "regions", "pooling": {"name": "kmax", "k": 10}}, text)
    assert isinstance(model, UnifiedModel)
    embedder = ComponentEmbedder(model, vocabulary, None)
    assert embedder.phrases("two smaller dogs are running in the field") == phrases
    (inputs,) = embedder.inputs(["two smaller dogs are running in the field"])
    (triple,) = inputs.triples_TL.tolist()
    assert [vocabulary.word(word) for word in triple] == " ".join(phrases[-1]).split()


@pytest.mark.parametrize("numerals", [False, True])
def test_numbers_are_attributes_by_option(numerals: bool) -> None:
    vocabulary = Vocabulary(["<pad>", "<start>", "<end>", "<unk>", "two", "black", "dog"])
    text = {"name": "components", "word_dim": 6, "numerals": numerals}
    model = build_model(4, len(vocabulary), 8, {"name": "regions", "pooling": {"name": "kmax", "k": 10}}, text)
    assert isinstance(model, UnifiedModel)
    embedder = ComponentEmbedder(model, vocabulary, None)
    (components_of_text,) = embedder.inputs(["two black dogs"])
    pairs = [[vocabulary.word(word) for word in pair] for pair in components_of_text.pairs_A2.tolist()]
    assert pairs == [["two", "dog"]] * numerals + [["black", "dog"]]
    assert (("two", "dog") in embedder.phrases("two black dogs")) == numerals
    config = load_config(None, ["preset=univse", f"model.text.numerals={numerals}"])
    assert config.model.text.options()["numerals"] == numerals

"""Dependencies by regions and by the global vector, with their controls, against loops in plain Python."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from pipelines.evaluation.protocols.dependencies import dependencies
from pipelines.kinds.component_embedder import ComponentEmbedder
from pipelines.runtime.stage import StageError
from pipelines.schema.captions import PoolsConfig
from preprocessing.captions.adversarial.sentence import TokenizedCaption
from preprocessing.captions.components import component_words
from preprocessing.captions.graph_shards import read_captions
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.shards.reader import ShardReader
from tests.pipelines.tiny_graphs import COLOURS, WIDTH, write_split
from vse_core.evaluation.dependency import other_images
from vse_core.models import build_model
from vse_core.models.unified import UnifiedModel

IMAGES = 40


@pytest.fixture
def inputs(tmp_path: Path) -> SimpleNamespace:
    """A split of forty images and an untrained UniVSE."""
    write_split(tmp_path, IMAGES, 0)
    captions = list(read_captions(tmp_path / "graphs"))
    words = component_words((caption.graph for of_image in captions for caption in of_image), 1)
    vocabulary = Vocabulary(["<pad>", "<start>", "<end>", "<unk>", *words])
    torch.manual_seed(0)
    image = {"name": "regions", "pooling": {"name": "mean"}}
    model = build_model(WIDTH, len(vocabulary), 8, image, {"name": "components", "word_dim": 6}).eval()
    assert isinstance(model, UnifiedModel)
    embedder = ComponentEmbedder(model, vocabulary, None)
    reader = ShardReader(tmp_path / "features", "grid")
    features = torch.stack([torch.from_numpy(reader.features(image).copy()) for image in range(IMAGES)]).float()
    with torch.inference_mode():
        images = model.encode_images(features, torch.full((IMAGES,), 4))
        regions = model.image_encoder.images_and_regions(features, torch.full((IMAGES,), 4))[1]
    texts = SimpleNamespace(
        components=embedder, model=model, embed_phrases=embedder.embed_phrases, as_read=embedder.as_read
    )
    gallery = SimpleNamespace(images_BKD=images)
    pools = PoolsConfig(min_adjectives=1)
    return SimpleNamespace(captions=captions, texts=texts, gallery=gallery, reader=reader, regions=regions, pools=pools)


def similar(inputs: SimpleNamespace, image: int, score: str, *phrase: str) -> float:
    vector = inputs.texts.embed_phrases([phrase])[0]
    if score == "global":
        return float(inputs.gallery.images_BKD[image, 0] @ vector)
    return max(float(region @ vector) for region in inputs.regions[image])


def resolved(inputs: SimpleNamespace, caption: TokenizedCaption, image: int, score: str) -> list[bool]:
    """Whether the nouns of a caption's attributes are found with an image; of those that leave a choice."""

    def similarity(*phrase: str) -> float:
        return similar(inputs, image, score, *phrase)

    things = caption.graph.objects
    known = {(attribute.lemma, thing.lemma) for thing in things for attribute in thing.attributes}
    found = []
    for adjective in dict.fromkeys(adjective for adjective, _ in known):
        nouns = {thing.lemma: similarity(adjective, thing.lemma) for thing in things}
        if score == "relative":
            nouns = {noun: value - similarity(noun) for noun, value in nouns.items()}
        true = {noun for noun in nouns if (adjective, noun) in known}
        if true != set(nouns):
            found.append(max(nouns, key=lambda noun: nouns[noun]) in true)
    return found


def test_scores_and_controls_are_those_of_loops(inputs: SimpleNamespace) -> None:
    found = dependencies(cast("Any", inputs)).metrics
    others = other_images(IMAGES).tolist()
    for score in ("global", "regions", "relative"):
        accuracies = []
        for images in (range(IMAGES), others):
            each = [
                hit
                for captions, image in zip(inputs.captions, images, strict=True)
                for caption in captions
                for hit in resolved(inputs, caption, image, score)
            ]
            assert len(each) == found["dependencies/attributes_dependencies"] > 50
            accuracies.append(100 * sum(each) / len(each))
        prefix = f"dependencies/attributes_{score}_"
        assert found[f"{prefix}accuracy"] == pytest.approx(accuracies[0])
        assert found[f"{prefix}wrong_image"] == pytest.approx(accuracies[1])
        assert found[f"{prefix}contribution"] == pytest.approx(accuracies[0] - accuracies[1])
        assert (
            found[f"{prefix}contribution_low"] <= found[f"{prefix}contribution"] <= found[f"{prefix}contribution_high"]
        )
    assert found["dependencies/attributes_chance"] == 50
    assert found["dependencies/attributes_accuracy"] == found["dependencies/attributes_regions_accuracy"]
    assert found["dependencies/relations_accuracy"] == found["dependencies/relations_global_accuracy"]
    assert "dependencies/relations_wrong_image" in found


def test_colours_of_nouns_are_those_of_loops(inputs: SimpleNamespace) -> None:
    """Each image's shapes have a colour each: four candidates, of which any that a caption of the image has is true."""
    found = dependencies(cast("Any", inputs)).metrics
    for score in ("global", "regions"):
        hits: dict[str, list[bool]] = {"accuracy": [], "wrong_image": []}
        for own, (other, captions) in enumerate(zip(other_images(IMAGES).tolist(), inputs.captions, strict=True)):
            things = [[(a.lemma, o.lemma) for o in c.graph.objects for a in o.attributes] for c in captions]
            for noun in (noun for pairs in things for _, noun in pairs):
                true = {colour for pairs in things for colour, other_noun in pairs if other_noun == noun}
                for name, image in (("accuracy", own), ("wrong_image", other)):
                    values = {similar(inputs, image, score, colour, noun): colour for colour in COLOURS}
                    hits[name].append(values[max(values)] in true)
        for name, each in hits.items():
            assert found[f"dependencies/colours_{score}_{name}"] == pytest.approx(100 * sum(each) / len(each))
        assert len(hits["accuracy"]) == found["dependencies/colours_dependencies"]
    assert found["dependencies/colours_chance"] == 25
    assert found["dependencies/colours_accuracy"] == found["dependencies/colours_regions_accuracy"]
    assert "dependencies/colours_relative_accuracy" not in found


def test_models_without_regions_have_the_global_score(inputs: SimpleNamespace) -> None:
    by_regions = dependencies(cast("Any", inputs)).metrics
    inputs.texts.components = None
    results = dependencies(cast("Any", inputs))
    key = "dependencies/attributes_accuracy"
    assert results.metrics[key] == by_regions["dependencies/attributes_global_accuracy"]
    assert "with a wrong image" in results.summary
    assert not any("regions" in name for name in results.metrics)


def test_a_single_image_has_no_other(inputs: SimpleNamespace) -> None:
    inputs.captions = inputs.captions[:1]
    with pytest.raises(StageError, match="no other"):
        dependencies(cast("Any", inputs))

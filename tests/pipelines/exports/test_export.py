"""An exported model gives the vectors of the registered one: in onnxruntime, in sentence-transformers, from the hub."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import yaml
from torch import Tensor
from transformers import AutoModel, AutoProcessor, BertConfig, ViTConfig

from pipelines.config.model import ModelConfig
from pipelines.exports import card
from pipelines.exports.export import export_bundle, main, push_folder
from pipelines.inference.embedder import Embedder, write_extractor
from pipelines.inference.learned_values import learned_logits, write_learned_values
from pipelines.inference.start import write_start
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.stage import StageError
from preprocessing.captions.subwords import SubwordTokenizer
from preprocessing.features.images import load_image
from tests.dual_encoders import SIDE, dual_specification, write_dual_encoder
from tests.pipelines.tiny_bundle import write_tiny_bundle, write_tiny_unified_bundle
from vse_core.digests import write_digests
from vse_core.encoders.dual import joined_network
from vse_core.encoders.pretrained import architecture_of
from vse_core.models import build_model, load_model, load_weights
from vse_core.models.onnx import OnnxError, export_onnx, onnx_difference

TEXTS = ["a red circle", "two small blue squares above a big green triangle on the left", "a square"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    bundle = write_tiny_bundle(folder / "bundle")
    export_bundle("tiny", bundle, folder / "out")
    return folder / "out"


def test_both_graphs_give_the_vectors_of_the_model(exported: Path) -> None:
    embedder = Embedder(exported / "model", exported / "extractor", device="cpu")
    ((tokens_CL, lengths_C, *_),) = embedder.texts.batches(TEXTS)
    tokens_CL[1:, :][tokens_CL[1:, :] == 0] = 3  # padding may hold anything
    session = onnxruntime.InferenceSession(exported / "onnx" / "texts.onnx")
    (texts_CD,) = session.run(None, {"tokens": tokens_CL.numpy(), "lengths": lengths_C.numpy()})
    np.testing.assert_allclose(texts_CD, embedder.embed_texts(TEXTS).numpy(), atol=2e-6)
    sets = [np.random.default_rng(n).standard_normal((n, 192)).astype(np.float16) for n in (1, 7, 3, 36)]
    padded = np.full((4, 36, 192), 5.0, dtype=np.float32)
    for row, features in zip(padded, sets, strict=True):
        row[: len(features)] = features
    session = onnxruntime.InferenceSession(exported / "onnx" / "images.onnx")
    (images_BKD,) = session.run(None, {"features": padded, "lengths": np.array([1, 7, 3, 36])})
    np.testing.assert_allclose(images_BKD, embedder._embed([sets]).numpy(), atol=2e-6)


def test_graphs_of_biases_are_those_of_the_correction(tmp_path: Path) -> None:
    bundle = write_tiny_bundle(tmp_path / "bundle", is_corrected=True)
    (bundle / "model_card.md").write_text("# tiny\n\nAbout it.\n\n## Metrics\n\nRSUM 12\n")
    lines = export_bundle("tiny", bundle, tmp_path / "out")
    gallery = Gallery.load(bundle / "gallery")
    assert gallery.biases is not None
    for name, items, bias in (
        ("images", gallery.images_BKD, gallery.biases.images_B),
        ("texts", gallery.texts_CD, gallery.biases.texts_C),
    ):
        session = onnxruntime.InferenceSession(tmp_path / "out" / "onnx" / f"{name}_bias.onnx")
        (found,) = session.run(None, {"embeddings": items.numpy()})
        np.testing.assert_allclose(found, bias.numpy(), atol=2e-6)
        assert any(f"{name}_bias.onnx" in line for line in lines)
    told = (tmp_path / "out" / "README.md").read_text()
    assert "less the item's bias" in told
    assert told.endswith("\nAbout it.\n\n## Metrics\n\nRSUM 12\n")


def test_sentence_transformers_gives_equal_vectors(exported: Path) -> None:
    from sentence_transformers import SentenceTransformer

    embedder = Embedder(exported / "model", exported / "extractor", device="cpu")
    model = SentenceTransformer(str(exported), trust_remote_code=True, device="cpu", local_files_only=True)
    np.testing.assert_allclose(model.encode(TEXTS), embedder.embed_texts(TEXTS).numpy(), atol=1e-6)
    assert np.isfinite(model.encode([" ".join(TEXTS * 200)])).all()
    uris = ["scene://0/0", "scene://0/1"]
    images = model.encode([load_image(uri) for uri in uris])
    np.testing.assert_allclose(images, embedder.embed_images(uris)[:, 0].numpy(), atol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("image", "text"),
    [
        ({"pooling": {"name": "mean"}}, {"pooling": {"name": "last"}, "directions": 1}),
        ({"pooling": {"name": "gpo"}, "views": 3, "mlp": False}, {"pooling": {"name": "gpo"}}),
        ({"pooling": {"name": "gpo"}, "projections": 3, "mlp": False}, {"pooling": {"name": "gpo"}}),
        ({"pooling": {"name": "adpool"}}, {"pooling": {"name": "adpool"}}),
        ({"pooling": {"name": "mean"}}, {"pooling": {"name": "last"}, "directions": 1, "learned_dim": 3}),
    ],
    ids=["vse_pp", "mv_vse", "mv_vse_projections", "vse_2ad", "vse_c_release"],
)
def test_each_two_tower_system_has_both_graphs(tmp_path: Path, image: Any, text: Any) -> None:
    torch.manual_seed(0)
    model = build_model(12, 30, 8, image, {**text, "word_dim": 6}).eval()
    export_onnx(model, tmp_path)
    captions = [(torch.randint(0, 30, (4, 9)), torch.tensor([9, 1, 4, 2]))]
    assert max(onnx_difference(model, tmp_path, captions).values()) < 2e-6


@pytest.mark.nightly
def test_networks_of_transformers_have_both_graphs(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    configs = (ViTConfig(**sizes, image_size=32, patch_size=8), BertConfig(**sizes, vocab_size=40))
    vit, bert = (architecture_of(AutoModel.from_config(config)) for config in configs)
    pixels = {"bgr": False, "mean": [120.0] * 3, "std": [60.0] * 3}
    image = {"name": "backbone", "architecture": vit, "image_size": 32, "pixels": pixels, "pooling": {"name": "gpo"}}
    text = {"name": "bert", "architecture": bert, "pooling": {"name": "gpo"}}
    torch.manual_seed(0)
    model = build_model(None, 40, 8, image, text).eval()
    export_onnx(model, tmp_path)
    captions = [(torch.randint(0, 40, (4, 9)), torch.tensor([9, 1, 4, 2]))]
    assert max(onnx_difference(model, tmp_path, captions).values()) < 2e-6


@pytest.mark.parametrize(
    ("model_type", "lora"),
    [
        ("clip", {"rank": 2, "alpha": 8.0, "dropout": 0.0}),
        *(pytest.param(name, None, marks=pytest.mark.nightly) for name in ("clip", "openai", "siglip")),
    ],
)
def test_a_dual_encoder_leaves_with_its_updates_merged(
    tmp_path: Path, model_type: str, lora: dict[str, Any] | None
) -> None:
    from sentence_transformers import SentenceTransformer

    texts = ["a red circle", "two small blue squares", "a square"]
    weights = write_dual_encoder(tmp_path / "weights", "siglip" if model_type == "siglip" else "clip", texts)
    if model_type == "openai":  # whose configurations name another end of captions than their tokenizer
        config = json.loads((weights / "config.json").read_text())
        config["text_config"]["eos_token_id"] = 2
        (weights / "config.json").write_text(json.dumps(config))
    trained = build_model(**dual_specification(weights, lora)).eval()
    for name, parameter in trained.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    model = tmp_path / "bundle" / "model"
    model.mkdir(parents=True)
    trained.save(model)
    SubwordTokenizer.from_pretrained(str(weights), for_tower=True).save(model / SubwordTokenizer.FILE)
    write_extractor(tmp_path / "bundle" / "extractor", "images", {})
    export_bundle(model_type, tmp_path / "bundle", tmp_path / "out")

    load_weights(trained, model)
    embedder = Embedder(model, tmp_path / "bundle" / "extractor", device="cpu")
    ((tokens_CL, lengths_C, *_),) = embedder.texts.batches(texts)
    pixels_BCHW = torch.rand(5, 3, SIDE, SIDE) * 255
    with torch.no_grad():
        expected = trained.encode_images(pixels_BCHW, torch.ones(5, 1)), trained.encode_texts(tokens_CL, lengths_C)
    given = {"images": {"pixels": pixels_BCHW}, "texts": {"tokens": tokens_CL, "lengths": lengths_C}}
    for (name, tensors), vectors in zip(given.items(), expected, strict=True):
        session = onnxruntime.InferenceSession(tmp_path / "out" / "onnx" / f"{name}.onnx")
        (found,) = session.run(None, {key: tensor.numpy() for key, tensor in tensors.items()})
        np.testing.assert_allclose(found, vectors.numpy(), atol=1e-5)
    require_loaded_by_others(tmp_path / "out", texts, pixels_BCHW, expected)
    images = [load_image(uri).resize((SIDE, SIDE)) for uri in ("scene://0/0", "scene://0/1")]
    sentences = SentenceTransformer(str(tmp_path / "out"), device="cpu", local_files_only=True)
    np.testing.assert_allclose(sentences.encode(texts), expected[1].numpy(), atol=1e-5)
    of_images_BCHW = torch.stack([torch.from_numpy(np.array(image)).permute(2, 0, 1).float() for image in images])
    with torch.no_grad():
        images_B1D = trained.encode_images(of_images_BCHW, torch.ones(2, 1))
    np.testing.assert_allclose(sentences.encode(images), images_B1D[:, 0].numpy(), atol=1e-5)

    library = AutoModel.from_pretrained(tmp_path / "out")
    published = AutoModel.from_pretrained(weights)
    assert float(library.logit_scale) == pytest.approx(float(published.logit_scale), abs=1e-6)
    write_learned_values(model, {"logit_scale": 3.5, "bias": -9.0})
    write_digests(model)
    learned = joined_network(embedder.model.image_encoder, embedder.model.text_encoder, learned_logits(model))
    assert float(learned.logit_scale) == 3.5
    assert float(getattr(learned, "logit_bias", -9.0)) == -9.0


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_interpolated_weights_are_the_mean_of_both_ends(
    tmp_path: Path, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.exports.export._write_onnx", lambda *_: {})  # takes a minute
    weights = write_dual_encoder(tmp_path / "weights", "siglip", TEXTS)
    (weights / "README.md").write_text("---\nlicense: apache-2.0\n---\n# base\n")
    trained = build_model(**dual_specification(weights, {"rank": 2, "alpha": 8.0, "dropout": 0.0}))
    for name, parameter in trained.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    model = tmp_path / "bundle" / "model"
    model.mkdir(parents=True)
    trained.save(model)
    SubwordTokenizer.from_pretrained(str(weights), for_tower=True).save(model / SubwordTokenizer.FILE)
    write_learned_values(model, {"logit_scale": 3.0, "bias": -9.0})
    write_start(model, ModelConfig(**{"name": "dual_encoder", "weights": str(weights)}))
    write_digests(model)
    write_extractor(tmp_path / "bundle" / "extractor", "images", {})
    export_bundle("tiny", tmp_path / "bundle", tmp_path / "out", share)

    begun, found = (AutoModel.from_pretrained(folder).state_dict() for folder in (weights, tmp_path / "out"))
    tuned = load_model(model)
    ends = joined_network(tuned.image_encoder, tuned.text_encoder, learned_logits(model)).state_dict()
    for name, tensor in found.items():
        for index in np.ndindex(*tensor.shape[:1]):
            expected = (1 - share) * begun[name][index] + share * ends[name][index]
            torch.testing.assert_close(tensor[index], expected, atol=1e-6, rtol=0)
    if share in (0, 1):
        assert all(torch.equal(tensor, (begun, ends)[int(share)][name]) for name, tensor in found.items())
    header, _, text = (tmp_path / "out" / "README.md").read_text().removeprefix("---\n").partition("---\n")
    assert yaml.safe_load(header) == {
        "library_name": "transformers",
        "pipeline_tag": "zero-shot-image-classification",
        "tags": ["image-text-retrieval", "vse"],
        "license": "apache-2.0",
    }
    assert f"The weights are {share:g} of the fine-tuned" in text

    write_dual_encoder(weights, "siglip", ["other words"])
    with pytest.raises(StageError, match=r"are not in .* as they were"):
        export_bundle("tiny", tmp_path / "bundle", tmp_path / "again", share)
    with pytest.raises(StageError, match="is for dual encoders that were fine-tuned"):
        export_bundle("tiny", write_tiny_bundle(tmp_path / "other"), tmp_path / "again", share)


def test_a_card_names_the_model_on_the_hub_and_the_licence_of_its_card(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "README.md").write_text("---\nlicense: other\nlicense_name: mine\ntags: [a]\n---\n")
    monkeypatch.setattr(card, "hf_hub_download", lambda name, file, etag_timeout: tmp_path / file)
    both = {"base_model": "openai/clip", "license": "other", "license_name": "mine"}
    for weights, expected in ((["openai/clip"], both), (["IMAGENET1K_V2"], {}), (["/data/clip"], {}), ([], {})):
        header = yaml.safe_load(card.hub_card("m", {}, "transformers", weights, "", None).split("---\n")[1])
        assert {key: header[key] for key in header if key not in ("library_name", "pipeline_tag", "tags")} == expected


def require_loaded_by_others(folder: Path, texts: list[str], pixels_BCHW: Tensor, expected: tuple[Tensor, ...]) -> None:
    """Transformers alone gives the vectors of images (B, 1, D) and texts (C, D), by its own classes."""
    processor = AutoProcessor.from_pretrained(folder)
    mean, std = (torch.tensor(value).reshape(3, 1, 1) for value in (
        processor.image_processor.image_mean, processor.image_processor.image_std
    ))  # fmt: skip
    network = AutoModel.from_pretrained(folder).eval()
    assert type(network).__name__ == json.loads((folder / "config.json").read_text())["architectures"][0]
    padding = "max_length" if network.config.model_type == "siglip" else True
    with torch.no_grad():
        tokens = processor.tokenizer(texts, return_tensors="pt", padding=padding, truncation=True)
        of_texts = network.get_text_features(input_ids=tokens["input_ids"]).pooler_output
        of_images = network.get_image_features(pixel_values=(pixels_BCHW / 255 - mean) / std).pooler_output
    for found, vectors in ((of_images, expected[0][:, 0]), (of_texts, expected[1])):
        torch.testing.assert_close(torch.nn.functional.normalize(found), vectors, atol=1e-5, rtol=0)


def test_univse_is_exported_without_graphs_and_says_so(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    bundle = write_tiny_unified_bundle(tmp_path / "bundle")
    lines = export_bundle("univse", bundle, tmp_path / "out")
    assert any("UnifiedModel has no ONNX form" in line for line in lines)
    assert not (tmp_path / "out" / "onnx").exists()
    model = SentenceTransformer(str(tmp_path / "out"), trust_remote_code=True, device="cpu", local_files_only=True)
    expected = Embedder(bundle / "model", bundle / "extractor", device="cpu").embed_texts(TEXTS)
    np.testing.assert_allclose(model.encode(TEXTS), expected.numpy(), atol=1e-6)


def test_hgr_is_refused_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.json").write_text(json.dumps({"text": {"name": "role_graphs"}}))
    with pytest.raises(StageError, match="has no vectors to export"):
        export_bundle("hgr", tmp_path, tmp_path / "out")
    model = build_model(
        12,
        30,
        8,
        {"name": "levels", "pooling": {"name": "mean"}},
        {"name": "role_graphs", "pooling": {"name": "mean"}, "word_dim": 6},
    )
    with pytest.raises(OnnxError, match="HierarchicalModel has no ONNX form"):
        export_onnx(model, tmp_path)


def test_a_folder_is_pushed(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, Any]] = []

    class Api:
        def create_repo(self, repo_id: str, private: bool, exist_ok: bool) -> None:
            calls.append(("create", (repo_id, private, exist_ok)))

        def upload_folder(self, folder_path: Path, repo_id: str) -> str:
            calls.append(("files", sorted(path.name for path in Path(folder_path).iterdir())))
            return f"https://hub/{repo_id}"

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    assert push_folder(exported, "me/vse", private=True) == "https://hub/me/vse"
    assert calls[0] == ("create", ("me/vse", True, True))
    assert {"README.md", "model", "extractor"} <= set(calls[1][1])


def test_command_refuses_a_folder_that_is_there_and_plans_without_writing(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StageError, match="is there already"):
        main(["--model", str(exported), "--output", str(tmp_path)])
    with pytest.raises(StageError, match="holds no model"):
        main(["--model", str(tmp_path / "none"), "--output", str(tmp_path / "new")])
    main(["--model", str(exported), "--output", str(tmp_path / "new"), "--dry-run"])
    assert "would export" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()

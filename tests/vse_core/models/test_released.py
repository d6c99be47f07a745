"""Released checkpoints: the imported model gives the embeddings of the official one; nothing else gets in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torchvision
from torch import nn

from tests.vse_core.models import official
from vse_core.models import TwoTower, load_model
from vse_core.models.import_checkpoint import import_checkpoint, main
from vse_core.models.released import CheckpointError, ReleasedCheckpoint, convert

PAIRS = {
    "vse_infty-bigru": lambda: (official.RegionEncoder(), official.GruEncoder()),
    "vse_infty-bert": lambda: (official.RegionEncoder(), official.BertTextEncoder()),
    "mv_vse": lambda: (official.ViewsEncoder(2), official.GruEncoder(pool_name=None)),
    "vse_2ad-bigru": lambda: (official.RegionEncoder("pool"), official.GruEncoder("pool")),
    "vse_2ad-bert": lambda: (official.RegionEncoder("pool"), official.BertTextEncoder("fc", "pool")),
}


def official_pair(name: str) -> tuple[nn.Module, nn.Module]:
    """The two encoders of a released system, with random weights, in evaluation mode."""
    torch.manual_seed(3)
    image, text = PAIRS[name]()
    return image.eval(), text.eval()


@torch.inference_mode()
def assert_same_embeddings(model: TwoTower, image: nn.Module, text: nn.Module, pixels: int | None = None) -> None:
    """Samples of one length: the released ADPOOL depends on padding."""
    generator = torch.Generator().manual_seed(5)
    if pixels is None:
        images, elements = torch.randn(3, 6, official.FEATURES, generator=generator), torch.full((3,), 6)
    else:
        images = torch.randint(0, 256, (2, 3, pixels, pixels), generator=generator).float()
        elements = torch.ones(2, model.image_encoder.cells, dtype=torch.bool)
    tokens = torch.randint(1, official.WORDS, (4, 5), generator=generator)
    expected_images = torch.stack([image(sample) for sample in images])
    expected_texts = torch.stack([text(row) for row in tokens])
    torch.testing.assert_close(model.encode_images(images, elements), expected_images, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(model.encode_texts(tokens, torch.full((4,), 5)), expected_texts)


@pytest.mark.parametrize("name", PAIRS)
def test_imported_models_give_the_official_embeddings(tmp_path: Path, name: str):
    image, text = official_pair(name)
    save = official.save_flat if name.startswith("vse_2ad") else official.save_pair
    save(tmp_path / "model_best.pth", image, text)
    assert main([str(tmp_path / "model_best.pth"), "--out", str(tmp_path / "new" / "model")]) == 0
    assert_same_embeddings(load_model(tmp_path / "new" / "model"), image, text)


def test_names_of_data_parallel_and_of_old_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    image, text = official_pair("vse_infty-bert")
    text.bert.embeddings.register_buffer("position_ids", torch.arange(12).expand(1, -1))
    official.save_pair(tmp_path / "m.pth", nn.DataParallel(image), nn.DataParallel(text))
    assert main([str(tmp_path / "m.pth"), "--out", str(tmp_path / "out")]) == 0
    # The batch norm that nothing calls, BERT's pooler, and the buffer.
    assert "left out, as the released code never uses them: 8 tensors" in capsys.readouterr().out
    assert_same_embeddings(load_model(tmp_path / "out"), image, text)
    image, text = official_pair("vse_2ad-bigru")
    official.save_flat(tmp_path / "flat.pth", image, text, parallel=True)
    import_checkpoint(tmp_path / "flat.pth", tmp_path / "flat")
    assert_same_embeddings(load_model(tmp_path / "flat"), image, text)


@pytest.mark.parametrize("system", ["vse_infty", "vse_2ad"])
def test_grids_of_a_network_that_was_trained_along(tmp_path: Path, system: str):
    """The network is in the file twice, with a classifier that nothing calls; the options know the size of pixels."""
    torch.manual_seed(3)
    image, text, save = {
        "vse_infty": (official.GridEncoder(), official.GruEncoder(), official.save_pair),
        "vse_2ad": (official.TwoAdGridEncoder(), official.GruEncoder("pool"), official.save_flat),
    }[system]
    for module in image.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2.0)
    parallel, text = nn.DataParallel(image.eval()), text.eval()
    save(tmp_path / "m.pth", parallel, text, backbone_source="detector", input_scale_factor=0.375)
    converted = import_checkpoint(tmp_path / "m.pth", tmp_path / "out")
    # VSE+2AD also stores the MLP of its region encoder, which its grid encoder never calls.
    unused = sorted(name for name in converted.unused if not name.startswith("img_proj.mlp."))
    assert unused == ["backbone.resnet.fc.bias", "backbone.resnet.fc.weight"]
    assert converted.specification["image"]["architecture"] == "resnet50_caffe"
    model = load_model(tmp_path / "out")
    assert model.image_encoder.image_size == 96
    assert_same_embeddings(model, image, text, pixels=96)


@pytest.mark.parametrize("transformers", ["old", "new"])
def test_patches_of_a_transformer(tmp_path: Path, transformers: str):
    torch.manual_seed(3)
    image, text = official.PatchEncoder().eval(), official.BertTextEncoder("fc", "pool").eval()
    state = official.TwoAd(image, text).state_dict()
    assert official.old_vit_names(state).keys() != state.keys()
    torch.save({"model": official.old_vit_names(state) if transformers == "old" else state}, tmp_path / "m.pth")
    import_checkpoint(tmp_path / "m.pth", tmp_path / "out")
    assert_same_embeddings(load_model(tmp_path / "out"), image, text, pixels=48)


@pytest.mark.parametrize(
    ("network", "source", "expected", "pixels"),
    [
        ("resnet101", "detector", "resnet101_caffe", "caffe"),
        ("resnet101", "imagenet", "resnet101_caffe", "imagenet"),
        ("resnet152", "imagenet_res152", "resnet152_caffe", "imagenet"),
        ("resnext101_32x8d", "wsl", "resnext101_32x8d", "imagenet"),
    ],
)
def test_networks_are_told_by_their_shapes(network: str, source: str, expected: str, pixels: str):
    with torch.device("meta"):
        resnet = getattr(torchvision.models, network)()
        head = {"image_encoder.fc.weight": torch.empty(8, 2048)}
        gpo = {f"image_encoder.gpool.{name}": tensor for name, tensor in official.Gpo().state_dict().items()}
        text = official.GruEncoder().state_dict()
    image = {f"backbone.resnet.{name}": tensor for name, tensor in resnet.state_dict().items()}
    checkpoint = ReleasedCheckpoint({**image, **head, **gpo}, text, {"backbone_source": source})
    options = convert(checkpoint).specification["image"]
    assert (options["architecture"], options["pixels"], options["image_size"]) == (expected, pixels, 512)
    assert convert(checkpoint, image_size=256, pixels="caffe").specification["image"]["image_size"] == 256


def test_pixels_of_a_model_that_reads_features_are_refused(tmp_path: Path):
    official.save_pair(tmp_path / "m.pth", *official_pair("vse_infty-bigru"))
    with pytest.raises(CheckpointError, match="the model reads features, not pixels"):
        import_checkpoint(tmp_path / "m.pth", tmp_path / "out", image_size=256)


def test_copies_of_the_network_that_differ_are_refused(tmp_path: Path):
    image = {"backbone.resnet.conv1.weight": torch.zeros(2), "backbone.base.0.weight": torch.ones(2)}
    text = official.GruEncoder().state_dict()
    with pytest.raises(CheckpointError, match=r"two different tensors of the image encoder are both .*conv1\.weight"):
        convert(ReleasedCheckpoint(image, text, {}))


def test_files_from_before_pytorch_1_6(tmp_path: Path):
    image, text = official_pair("vse_infty-bigru")
    model = [image.state_dict(), text.state_dict()]
    torch.save({"model": model}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    import_checkpoint(tmp_path / "old.pth", tmp_path / "out")
    assert_same_embeddings(load_model(tmp_path / "out"), image, text)


def changed(tmp_path: Path, change: Callable[[dict, dict], object], name: str = "vse_infty-bigru") -> Path:
    """A file whose state dicts have been changed."""
    image, text = (encoder.state_dict() for encoder in official_pair(name))
    change(image, text)
    torch.save({"model": [image, text]}, tmp_path / "changed.pth")
    return tmp_path / "changed.pth"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i, t: i.update({"head.weight": i["fc.weight"]}), "unknown names in the image encoder: head.weight"),
        (lambda i, t: t.update({"rnn2.bias": i["fc.bias"]}), "unknown names in the text encoder: rnn2.bias"),
        (lambda i, t: i.pop("fc.bias"), "image_encoder.fc.bias"),
        (lambda i, t: i.pop("fc.weight"), "none of a published system: it has no image_encoder.fc.weight"),
        (lambda i, t: i.pop("mlp.bns.0.running_var"), "image_encoder.mlp.norm.running_var"),
        (lambda i, t: t.pop("gpool.gru.weight_ih_l0"), "no aggregator is known by its tensors"),
        (lambda i, t: i.update({"fc.bias": torch.zeros(3)}), "size mismatch for image_encoder.fc.bias"),
        (lambda i, t: i.clear(), "no tensors for one of its two encoders"),
        (lambda i, t: i.update({"pool.linear.weight": i["gpool.linear.weight"] + 1}), "two different tensors"),
        (lambda i, t: i.update({"fc.bias": "text"}), "not a released checkpoint"),
    ],
)
def test_unknown_missing_and_misshapen_tensors_are_refused(tmp_path: Path, change: Callable, message: str):
    with pytest.raises(CheckpointError) as refused:
        import_checkpoint(changed(tmp_path, change), tmp_path / "out")
    assert message in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [[1, 2], {"model": 3}, {"model": [{}]}, {"state_dict": {}}])
def test_other_files_are_refused(tmp_path: Path, content: object):
    torch.save(content, tmp_path / "other.pth")
    with pytest.raises(CheckpointError, match="is not a released checkpoint"):
        import_checkpoint(tmp_path / "other.pth", tmp_path / "out")


def test_damaged_and_absent_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    official.save_pair(tmp_path / "m.pth", *official_pair("vse_infty-bigru"))
    whole = (tmp_path / "m.pth").read_bytes()
    (tmp_path / "cut.pth").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.pth").touch()
    for name in ("cut.pth", "empty.pth", "absent.pth"):
        assert main([str(tmp_path / name), "--out", str(tmp_path / "out")]) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"error: {tmp_path / name} cannot be read as tensors alone")
        assert error.count("\n") == 1

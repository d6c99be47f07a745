"""Networks by name, from files of weights in every form they come in, and how pixels are brought to them."""

import json
import shutil
from pathlib import Path, PurePosixPath

import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModel, BertConfig, ConvNextImageProcessor, ResNetConfig

from tests.custom_code import Hostile, with_code_of_its_own
from tests.dual_encoders import write_dual_encoder
from tests.vision_networks import MAPS, PATCHES, SIDE, TIMM_MAPS, TIMM_PATCHES, write_vision_network
from vse_core.encoders.backbone import BackboneEncoder
from vse_core.encoders.networks import PIXELS, build_network, resolve_pixels
from vse_core.encoders.resnet import GridResNet
from vse_core.pooling import build_pooling

TINY = {"embedding_size": 8, "hidden_sizes": [8, 16, 16, 24], "depths": [1, 1, 1, 1], "layer_type": "basic"}


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(3)
    return GridResNet("resnet50_caffe")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("resnet")
    AutoModel.from_config(ResNetConfig(**TINY)).save_pretrained(directory)
    ConvNextImageProcessor(image_mean=[0.1, 0.2, 0.3], image_std=[0.4, 0.5, 0.6]).save_pretrained(directory)
    return directory


def released_file(network: nn.Module) -> dict[str, dict[str, torch.Tensor]]:
    stem = [network.conv1, network.bn1, network.relu, network.maxpool]
    base = nn.Sequential(*stem, network.layer1, network.layer2, network.layer3).state_dict()
    # As old as the release: before the counter existed.
    counter = "num_batches_tracked"
    return {
        "base": {name: tensor for name, tensor in base.items() if not name.endswith(counter)},
        "top": dict(nn.Sequential(network.layer4).state_dict()),
    }


@pytest.mark.parametrize("form", ["released", "torchvision", "safetensors"])
def test_every_form_of_file_loads(network: nn.Module, tmp_path: Path, form: str) -> None:
    path = tmp_path / ("weights.safetensors" if form == "safetensors" else "weights.pth")
    classifier = {"fc.weight": torch.zeros(1000, 2048), "fc.bias": torch.zeros(1000)}
    if form == "safetensors":
        save_file({**network.state_dict(), **classifier}, path)
    else:
        torch.save(released_file(network) if form == "released" else {**network.state_dict(), **classifier}, path)
    found, architecture = build_network("resnet50_caffe", str(path))
    assert architecture == "resnet50_caffe"
    for name, parameter in found.named_parameters():
        assert torch.equal(parameter, network.get_parameter(name)), name
    assert torch.equal(found.bn1.running_var, network.bn1.running_var)


def test_code_in_a_file_of_torchvision_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if torchvision had downloaded it: what is in its folder already is not compared with a hash."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    weights = torchvision.models.get_model_weights("resnet50")["IMAGENET1K_V2"]
    path = tmp_path / "hub" / "checkpoints" / PurePosixPath(weights.url).name
    path.parent.mkdir(parents=True)
    torch.save({"conv1.weight": Hostile(tmp_path / "made")}, path)
    with pytest.raises(ValueError, match="Weights only load failed"):
        build_network("resnet50", "IMAGENET1K_V2")
    assert not (tmp_path / "made").exists()


def test_weights_that_do_not_fit(network: nn.Module, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    state = dict(network.state_dict())
    del state["conv1.weight"]
    torch.save({**state, "more": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match=r"(?s)Missing key.*\"conv1.weight\".*Unexpected key.*\"more\""):
        build_network("resnet50", str(path))
    torch.save({"epoch": 3}, path)
    with pytest.raises(ValueError, match="no state dict"):
        build_network("resnet50", str(path))
    with pytest.raises(ValueError, match=r"file: name the architecture .* resnet101_caffe"):
        build_network(None, str(path))
    with pytest.raises(ValueError, match="no such file, and torchvision gives none"):
        build_network("resnet50", str(tmp_path / "absent.pth"))


def test_a_transformers_folder_and_what_rebuilds_it(folder: Path) -> None:
    network, architecture = build_network(None, str(folder))
    assert isinstance(architecture, dict)
    rebuilt, again = build_network(json.loads(json.dumps(architecture)), None)
    assert again == architecture
    rebuilt.load_state_dict(network.state_dict())
    pixels = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        states = [model.eval()(pixels).last_hidden_state for model in (network, rebuilt)]
    assert torch.equal(*states)
    assert states[0].shape == (1, 24, 2, 2)


def test_pixels_belong_to_the_weights(folder: Path, tmp_path: Path) -> None:
    found = resolve_pixels(None, {"model_type": "resnet"}, str(folder))
    assert found["bgr"] is False
    assert found["mean"] == pytest.approx([25.5, 51.0, 76.5])
    assert found["std"] == pytest.approx([102.0, 127.5, 153.0])
    assert resolve_pixels(found, {"model_type": "resnet"}, None) == found
    assert resolve_pixels(None, "resnet101_caffe", "file.pth") == PIXELS["caffe"]
    assert PIXELS["caffe"] == {"bgr": True, "mean": [102.9801, 115.9465, 122.7717], "std": [1, 1, 1]}
    assert resolve_pixels("imagenet", "resnet101_caffe", "file.pth") == PIXELS["imagenet"]
    imagenet = [value / 255 for key in ("mean", "std") for value in PIXELS["imagenet"][key]]
    assert imagenet == pytest.approx([0.485, 0.456, 0.406, 0.229, 0.224, 0.225])
    assert resolve_pixels(None, "resnext101_32x8d", None) == PIXELS["imagenet"]
    with pytest.raises(ValueError, match="name the normalisation"):
        resolve_pixels(None, {"model_type": "resnet"}, str(tmp_path))


@pytest.mark.parametrize("model_type", ["resnet", "custom"])
def test_code_in_a_folder_of_weights_is_refused_without_a_question(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, model_type: str
) -> None:
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("asked whether to run the code"))
    custom = with_code_of_its_own(Path(shutil.copytree(folder, tmp_path / "custom")), model_type)
    with pytest.raises(ValueError, match=r"custom' cannot be loaded .*(code of its own|custom code)") as caught:
        build_network(None, str(custom))
    assert "\n" not in str(caught.value)
    processor = {"image_processor_type": "Custom", "auto_map": {"AutoImageProcessor": "custom.Processor"}}
    (custom / "preprocessor_config.json").write_text(json.dumps(processor))
    with pytest.raises(ValueError, match=r"no settings for its images .*custom code"):
        resolve_pixels(None, {"model_type": "resnet"}, str(custom))
    assert not (custom / "ran").exists()


@pytest.mark.parametrize("name", [*PATCHES, *MAPS, *TIMM_PATCHES, *TIMM_MAPS, "clip", "siglip"])
def test_every_kind_of_network_is_trained_and_rebuilt(tmp_path: Path, name: str) -> None:
    is_dual = name in ("clip", "siglip")
    folder = write_dual_encoder(tmp_path, name, ["a ring"]) if is_dual else write_vision_network(tmp_path, name)
    network, architecture = build_network(None, str(folder))
    rebuilt, _ = build_network(json.loads(json.dumps(architecture)), None)
    rebuilt.load_state_dict(network.state_dict())
    side = 32 if is_dual else SIDE
    pixels_BCHW = torch.rand(2, 3, side, side) * 255
    encoders = []
    for each in (network, rebuilt):
        torch.manual_seed(0)
        pooling, pixels = build_pooling(name="mean", dim=8), resolve_pixels(None, architecture, str(folder))
        encoders.append(BackboneEncoder(each, architecture, 8, pooling, side, pixels))
    kept_BN = torch.ones(2, encoders[0].cells, dtype=torch.bool)
    found = [encoder.eval()(pixels_BCHW, kept_BN) for encoder in encoders]
    assert torch.equal(*found)
    found[0].sum().backward()
    trained = {key: value for key, value in network.named_parameters() if value.requires_grad}
    assert all(value.grad is not None for value in trained.values())


def test_a_text_network_is_no_backbone(tmp_path: Path) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
    AutoModel.from_config(BertConfig(vocab_size=11, **sizes)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="BertModel reads input_ids, no images; name a vision network"):
        build_network(None, str(tmp_path))

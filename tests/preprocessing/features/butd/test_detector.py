"""The detector as a whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from preprocessing.features.butd.detector import Detector, Size, random_detector
from tests.preprocessing.features.butd.tiny import noise, tiny_detector
from tests.vse_core.test_static_shapes import Operators


def test_the_published_network_has_the_published_shapes() -> None:
    with torch.device("meta"):
        state = Detector(Size(), 36, 36).state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    rpn, box = "proposal_generator.rpn_head", "roi_heads.box_predictor"
    expected = {
        "backbone.stem.conv1.weight": (64, 3, 7, 7),
        "proposal_generator.anchor_generator.cell_anchors.0": (12, 4),
        f"{rpn}.conv.weight": (512, 1024, 3, 3),
        f"{rpn}.objectness_logits.weight": (12, 512, 1, 1),
        f"{rpn}.anchor_deltas.weight": (48, 512, 1, 1),
        f"{box}.cls_score.weight": (1601, 2048),
        f"{box}.bbox_pred.weight": (6400, 2048),
        f"{box}.cls_embedding.weight": (1601, 256),
        f"{box}.fc_attr.weight": (512, 2304),
        f"{box}.attr_score.weight": (401, 512),
        "roi_heads.res5.0.conv1.weight": (512, 1024, 1, 1),
        "roi_heads.res5.0.shortcut.weight": (2048, 1024, 1, 1),
    }
    assert {name: shapes.get(name) for name in expected} == expected
    blocks = {f"backbone.res{stage}": count for stage, count in ((2, 3), (3, 4), (4, 23))} | {"roi_heads.res5": 3}
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    names = {f"backbone.stem.conv1.{name}" for name in ("weight", *(f"norm.{name}" for name in norm))}
    for stage, count in blocks.items():
        for block in range(count):
            for conv in ("conv1", "conv2", "conv3", *(["shortcut"] if block == 0 else [])):
                names |= {f"{stage}.{block}.{conv}.weight", *(f"{stage}.{block}.{conv}.norm.{name}" for name in norm)}
    heads = (f"{rpn}.conv", f"{rpn}.objectness_logits", f"{rpn}.anchor_deltas", f"{box}.cls_score", f"{box}.bbox_pred")
    for layer in (*heads, f"{box}.fc_attr", f"{box}.attr_score"):
        names |= {f"{layer}.weight", f"{layer}.bias"}
    names |= {f"{box}.cls_embedding.weight", "proposal_generator.anchor_generator.cell_anchors.0"}
    assert set(shapes) == names


def test_a_batch_gives_what_single_images_give() -> None:
    detector = tiny_detector()
    images = [noise(64, 96, 0), noise(81, 47, 1), noise(96, 128, 2, scale=1.5)]
    for image, found in zip(images, detector(images), strict=True):
        (alone,) = detector([image])
        torch.testing.assert_close(found, alone, rtol=1e-3, atol=1e-3)


def test_the_regions_of_an_image() -> None:
    """Oracle: the heads called once more for all proposals."""
    detector = tiny_detector()
    image = noise(96, 128, 2, scale=1.5)
    with torch.inference_mode():
        maps, sizes = detector.maps([image])
        proposals, counts = detector.proposals(maps, sizes, [image])
        (regions,) = detector([image])
        (proposals,), (features,) = proposals, detector.roi_heads(maps, proposals, counts)
        objects = detector.roi_heads.box_predictor.cls_score(features)
        attributes = detector.roi_heads.box_predictor.attributes(features, objects)
    assert 3 <= len(regions["boxes"]) <= 6
    assert (regions["features"] >= 0).all()
    assert (regions["boxes"] >= 0).all()
    assert (regions["boxes"].amax(0)[2:] <= torch.tensor([127.0, 95.0]) / 1.5 + 1e-2).all()
    for number, feature in enumerate(regions["features"]):
        (row,) = torch.nonzero((features == feature).all(dim=1)).flatten().tolist()
        scores = objects[row].softmax(0)[:5]
        assert regions["objects"][number] == scores.argmax()
        torch.testing.assert_close(regions["object_scores"][number], scores.max())
        scores = attributes[row].softmax(0)[:3]
        assert regions["attributes"][number] == scores.argmax()
        torch.testing.assert_close(regions["attribute_scores"][number], scores.max())
        torch.testing.assert_close(regions["boxes"][number], proposals[row] / 1.5)


def test_half_precision_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    image = noise(96, 128, 2)
    single, half = tiny_detector(), tiny_detector()
    half.compute_in(torch.bfloat16)
    boxes = torch.tensor([[0.0, 0.0, 60.0, 80.0], [30.0, 20.0, 120.0, 90.0]])
    with torch.inference_mode():
        features = [detector.roi_heads(detector.maps([image])[0], boxes[None], [2])[0] for detector in (single, half)]
    assert features[1].dtype == torch.float32
    torch.testing.assert_close(features[1], features[0], rtol=0.1, atol=0.1 * float(features[0].mean()))
    (regions,) = half([image])
    assert regions["boxes"].dtype == torch.float32
    assert half.proposal_generator.anchor_generator.cell_anchors[0].dtype == torch.float32


def test_a_seed_is_a_network() -> None:
    def values(seed: int) -> torch.Tensor:
        return torch.cat([parameter.flatten() for parameter in tiny_detector(seed=seed).parameters()])

    before = torch.random.get_rng_state()
    assert torch.equal(values(0), values(0))
    assert not torch.equal(values(0), values(1))
    assert torch.equal(torch.random.get_rng_state(), before)


class OnGpu(Operators):
    """Refuses copies to the GPU that the host waits for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        of = [value.device.type for value in (*args, result) if isinstance(value, torch.Tensor)]
        assert len(set(of)) < 2 or (kwargs or {}).get("non_blocking"), f"the host waits for {func}"
        return result


def test_a_batch_on_a_gpu_takes_three_waits_and_few_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that knows shapes alone; it refuses to tell values but for these lists."""
    answers = iter([[1, 0, *[300] * 8], 1, [36] * 8])
    monkeypatch.setattr(FakeTensor, "tolist", lambda _: next(answers))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda values: values)
    detector = random_detector(Size(width=2), 36, 36, seed=0)
    detector.compute_in(torch.float32)
    with FakeTensorMode(allow_non_fake_inputs=True):
        detector.to("cuda")
        with OnGpu() as operators:
            detector([noise(608, 800 - 16 * number) for number in range(8)])
    assert next(answers, None) is None
    assert operators.counts.total() <= 647, operators.counts.most_common()

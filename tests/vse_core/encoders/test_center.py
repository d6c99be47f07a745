"""Encoders around a mean are those of features from which it was subtracted before, from files and as ONNX too.

UniVSE's may see its regions alone that way.
"""

from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch

from vse_core.models import build_model, load_model
from vse_core.models.onnx import IMAGES, export_onnx
from vse_core.models.unified import UnifiedModel

LENGTHS = torch.tensor([4, 2, 3])
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "features": ({"mlp": True}, {"name": "bigru", "pooling": {"name": "mean"}}),
    "regions": ({"name": "regions"}, {"name": "components"}),
    "levels": ({"name": "levels"}, {"name": "role_graphs", "pooling": {"name": "mean"}}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_centred_model_sees_features_without_their_mean(kind: str, tmp_path: Path) -> None:
    image, text = KINDS[kind]
    sides = {"image": {**image, "pooling": {"name": "max"}}, "text": {**text, "word_dim": 6}}
    plain = build_model(5, 11, 8, **sides).eval()
    centred = build_model(5, 11, 8, sides["image"] | {"center": True}, sides["text"]).eval()
    mean_F = torch.tensor([3.0, -1.0, 0.5, 10.0, 0.0])
    centred.load_state_dict({**plain.state_dict(), "image_encoder.center.mean_F": mean_F})
    centred.save(tmp_path)
    features = torch.randn(3, 4, 5) + mean_F
    for model in (centred, load_model(tmp_path)):
        expected, found = plain.encode_images(features - mean_F, LENGTHS), model.encode_images(features, LENGTHS)
        if kind == "levels":
            expected, found = expected.events_bD, found.events_bD
        torch.testing.assert_close(found, expected)
    if isinstance(centred, UnifiedModel) and isinstance(plain, UnifiedModel):
        regions = plain.image_encoder.regions(features - mean_F, LENGTHS)[0]
        torch.testing.assert_close(centred.image_encoder.regions(features, LENGTHS)[0], regions)
    if kind == "features":
        export_onnx(centred, tmp_path)
        inputs = {"features": features.numpy(), "lengths": LENGTHS.numpy()}
        graph: Any = onnxruntime.InferenceSession(tmp_path / IMAGES).run(None, inputs)[0]
        torch.testing.assert_close(torch.from_numpy(graph), expected, atol=2e-6, rtol=1e-5)


def test_regions_alone_around_the_mean(tmp_path: Path) -> None:
    image, text = {"name": "regions", "pooling": {"name": "kmax", "k": 2}}, {"name": "components", "word_dim": 6}
    plain = build_model(5, 11, 8, image, text).eval()
    centred = build_model(5, 11, 8, image | {"center": "regions"}, text).eval()
    mean_F = torch.tensor([3.0, -1.0, 0.5, 10.0, 0.0])
    centred.load_state_dict({**plain.state_dict(), "image_encoder.center.mean_F": mean_F})
    centred.save(tmp_path)
    features = torch.randn(3, 4, 5) + mean_F
    assert isinstance(plain, UnifiedModel)
    for model in (centred, load_model(tmp_path)):
        assert isinstance(model, UnifiedModel)
        images, regions, _ = model.image_encoder.images_and_regions(features, LENGTHS)
        torch.testing.assert_close(images, plain.image_encoder(features, LENGTHS))
        torch.testing.assert_close(regions, plain.image_encoder.regions(features - mean_F, LENGTHS)[0])

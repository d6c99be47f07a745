"""BUTD regions as an extractor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import save_file

from preprocessing.features import build_extractor
from preprocessing.features.butd import extractor as butd
from preprocessing.features.extractor import ExtractorError, RegionFeatures
from tests.preprocessing.features.butd.tiny import TINY, noise, tiny_detector

SIZE = {"width": 2, "blocks": [1, 2, 1], "objects": 5, "attributes": 3}


def built(**options: Any) -> Any:
    return build_extractor("butd", **{"seed": 0, "size": SIZE, "min_regions": 4, "max_regions": 7, **options})


def test_regions_come_with_boxes_and_labels() -> None:
    """Oracle: the detector itself, with the same seed."""
    extractor = built()
    assert extractor.name == "region"
    items = [extractor.load("scene://0/0"), noise(64, 80)]
    assert items[0].values.shape == (3, 600, 600)
    found = extractor(items)
    for regions, expected in zip(found, tiny_detector(minimum=4, maximum=7)(items), strict=True):
        assert isinstance(regions, RegionFeatures)
        count = len(regions.features)
        assert 4 <= count <= 7
        assert (regions.features.shape, regions.features.dtype) == ((count, 64), np.float16)
        np.testing.assert_allclose(regions.features, expected["features"].numpy(), rtol=1e-2, atol=1e-3)
        dtypes = {name: (values.dtype.name, values.shape) for name, values in regions.companions.items()}
        assert dtypes == {
            "boxes": ("float32", (count, 4)),
            "objects": ("int32", (count,)),
            "object_scores": ("float32", (count,)),
            "attributes": ("int32", (count,)),
            "attribute_scores": ("float32", (count,)),
        }
        np.testing.assert_allclose(regions.companions["boxes"], expected["boxes"].numpy(), atol=1e-3)
        np.testing.assert_array_equal(regions.companions["attributes"], expected["attributes"].numpy())
    assert extractor([]) == []


def test_weights_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the published size made small; the seeded network of the same values gives the same regions."""
    monkeypatch.setattr(butd, "Size", lambda **_: TINY)
    save_file(tiny_detector(seed=0).state_dict(), tmp_path / "model.safetensors")
    loaded, seeded = built(weights=str(tmp_path), seed=None, size=None), built()
    (found,), (expected,) = loaded([noise(64, 80)]), seeded([noise(64, 80)])
    np.testing.assert_array_equal(found.features, expected.features)
    assert loaded.identity() == {**seeded.identity(), "seed": None}


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        ({}, False),
        ({"seed": 1}, True),
        ({"max_regions": 8}, True),
        ({"dtype": "bfloat16"}, True),
        ({"size": {**SIZE, "objects": 6}}, True),
    ],
)
def test_what_the_identity_depends_on(options: dict[str, Any], changes: bool) -> None:
    assert (built(**options).identity() != built().identity()) == changes


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"seed": None, "size": None}, "no weights are given; use the hub id unc-nlp/frcnn-vg-finetuned"),
        ({"weights": "owner/name"}, "weights were given and a seed or size too"),
        ({"min_regions": 8}, "got 8, 7"),
        ({"min_regions": 0}, "1 <= min_regions"),
        ({"variant": "detectron2"}, "variant 'detectron2' is gone"),
        ({"device": "abacus"}, "device 'abacus' cannot be used"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ExtractorError, match=reason):
        built(**options)


def test_features_that_float16_cannot_hold() -> None:
    extractor = built()
    for parameter in extractor._detector.roi_heads.res5[-1].conv3.parameters():
        parameter.fill_(1e6)
    with pytest.raises(ExtractorError, match=r"beyond the range of float16 \(largest .*, limit 65504\)"):
        extractor([noise(64, 80)])

"""Models of pixels and of features each read what they take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.inference.image_inputs import misfit


class _Images:
    """Shards of image files, which have no features to ask for a width."""

    is_image_files = True

    @property
    def feature_dim(self) -> int:
        raise ValueError


FEATURES = SimpleNamespace(is_image_files=False, feature_dim=8)
PIXELS = SimpleNamespace(image_size=4, cells=1, class_tokens=0, freeze=None)


@pytest.mark.parametrize(
    ("encoder", "reader", "expected"),
    [
        (PIXELS, _Images(), None),
        (PIXELS, FEATURES, "takes images, the configuration has features"),
        (SimpleNamespace(feature_dim=8), _Images(), "takes features, the configuration has images"),
        (SimpleNamespace(feature_dim=8), FEATURES, None),
        (SimpleNamespace(feature_dim=9), FEATURES, "takes features of width 9, those of the configuration have 8"),
    ],
)
def test_a_split_that_a_model_cannot_read(encoder: Any, reader: Any, expected: str | None) -> None:
    model: Any = SimpleNamespace(image_encoder=encoder)
    assert misfit(model, reader) == expected

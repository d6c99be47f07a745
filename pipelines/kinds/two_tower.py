"""Two-tower models (VSE++, VSE-infinity, MV-VSE, VSE+2AD): an encoder of images and one of tokens."""

from __future__ import annotations

from pipelines.kinds.kind import ModelKind


class TwoTowerKind(ModelKind):
    """A model of an image encoder and a text encoder, with the defaults of :class:`ModelKind`."""

    title = "a two-tower model"

"""Two-tower models (VSE++, VSE-infinity, MV-VSE, VSE+2AD): their captions are tokens, each side has its embeddings."""

from __future__ import annotations

from pipelines.kinds.kind import ModelKind


class TwoTowerKind(ModelKind):
    """A model of an image encoder and a text encoder, with the answers of :class:`ModelKind` as they stand."""

    title = "a two-tower model"

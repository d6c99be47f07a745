"""Kinds of models: their settings, and all that the rest of the pipeline asks them."""

from pathlib import Path
from typing import Annotated

from pipelines import plugins
from pipelines.kinds.adversarial import VSE_C, VseCLoss
from pipelines.kinds.hierarchical import HGR, HierarchicalLoss, LevelImageEncoderConfig, RoleGraphTextEncoderConfig
from pipelines.kinds.kind import TWO_TOWERS, ModelKind
from pipelines.kinds.unified import UNIVSE, ComponentTextEncoderConfig, RegionImageEncoderConfig, UnifiedLoss
from pipelines.schema.encoders import (
    BackboneImageEncoderConfig,
    BertTextEncoderConfig,
    BiGRUTextEncoderConfig,
    DualImageEncoderConfig,
    DualTextEncoderConfig,
    FeatureImageEncoderConfig,
)
from pipelines.schema.losses import AdoptLoss, ComplementaryLoss, InfoNceLoss, MultiViewLoss, SigmoidLoss, TripletLoss
from pipelines.schema.variants import Variants
from preprocessing.reading import damage_as, parse_json

ImageEncoderConfig = Annotated[
    FeatureImageEncoderConfig
    | BackboneImageEncoderConfig
    | DualImageEncoderConfig
    | RegionImageEncoderConfig
    | LevelImageEncoderConfig,
    Variants("name"),
]

TextEncoderConfig = Annotated[
    BiGRUTextEncoderConfig
    | BertTextEncoderConfig
    | DualTextEncoderConfig
    | ComponentTextEncoderConfig
    | RoleGraphTextEncoderConfig,
    Variants("name"),
]

LossConfig = Annotated[
    TripletLoss
    | MultiViewLoss
    | AdoptLoss
    | InfoNceLoss
    | SigmoidLoss
    | ComplementaryLoss
    | VseCLoss
    | UnifiedLoss
    | HierarchicalLoss,
    Variants("name", "loss"),
]


def known_kinds() -> list[ModelKind]:
    """Return the kinds with settings of their own, those of plugins last; all other models are two-tower models."""
    return [VSE_C, UNIVSE, HGR, *plugins.KINDS]


def trained_kind(loss: str) -> ModelKind:
    """Return the kind of the models that are trained with a loss, by its name."""
    return next((kind for kind in known_kinds() if kind.loss == loss), TWO_TOWERS)


def saved_kind(model: Path) -> ModelKind:
    """Return the kind of a saved model, by its directory; ValueError if it holds no model."""
    with damage_as(ValueError, f"{model} holds no model", "restore the folder"):
        text = parse_json((model / "model.json").read_bytes())["text"].get("name")
    return next((kind for kind in known_kinds() if kind.text is not None and kind.text == text), TWO_TOWERS)

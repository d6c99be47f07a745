"""Whole models in one space, built from plain keyword arguments."""

from vse_core.models.adversarial import AdversarialModel
from vse_core.models.build import Model, build_model
from vse_core.models.bundle import load_model, load_weights, save_model
from vse_core.models.components import Components
from vse_core.models.hierarchical import HierarchicalModel
from vse_core.models.two_tower import TwoTower
from vse_core.models.unified import UnifiedModel
from vse_core.models.warm_start import start_from

__all__ = [
    "AdversarialModel",
    "Components",
    "HierarchicalModel",
    "Model",
    "TwoTower",
    "UnifiedModel",
    "build_model",
    "load_model",
    "load_weights",
    "save_model",
    "start_from",
]

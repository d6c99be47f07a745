"""Whole models in one space, built from plain keyword arguments."""

from vse_core.models.build import build_model
from vse_core.models.bundle import load_model, load_weights
from vse_core.models.model import Model
from vse_core.models.two_tower import TwoTower
from vse_core.models.warm_start import start_from

__all__ = [
    "Model",
    "TwoTower",
    "build_model",
    "load_model",
    "load_weights",
    "start_from",
]

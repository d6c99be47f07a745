"""Whole models: an image tower and a text tower in one space, built from plain keyword arguments."""

from vse_core.models.bundle import load_model, load_weights, save_model
from vse_core.models.two_tower import TwoTower, build_model

__all__ = ["TwoTower", "build_model", "load_model", "load_weights", "save_model"]

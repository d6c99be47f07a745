"""Complete models in one space, built from plain keyword arguments."""

from vse_core.models.build import build_model, load_model, load_text_side, load_weights, start_from
from vse_core.models.model import Model, TwoTower

__all__ = ["Model", "TwoTower", "build_model", "load_model", "load_text_side", "load_weights", "start_from"]

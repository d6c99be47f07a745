"""Folders of open_clip told from those of transformers, and the package that reads them."""

from importlib import import_module
from pathlib import Path
from typing import Any

CONFIG = "open_clip_config.json"
PACKAGE = "pip install 'vse-pipeline[open_clip]'"


def is_open_clip(folder: Path) -> bool:
    """Return whether a folder is open_clip's alone; one that transformers reads as well is transformers'."""
    return (folder / CONFIG).is_file() and not is_of_transformers(folder / "config.json")


def is_of_transformers(config: Path) -> bool:
    """Return whether a config.json names a type of model; that of timm, next to open_clip's, does not."""
    return config.is_file() and b'"model_type"' in config.read_bytes()


def open_clip() -> Any:
    """Return the package; ValueError if it is not installed."""
    try:
        return import_module("open_clip")
    except ImportError as error:
        raise ValueError(f"weights of open_clip need its package ({error}): {PACKAGE}") from error

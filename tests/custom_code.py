"""Weights that bring code along."""

import json
import os
from collections.abc import Callable
from pathlib import Path


class Hostile:
    """Pickled, it is an order to make a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.makedirs, (str(self.folder),)


def with_code_of_its_own(folder: Path, model_type: str) -> Path:
    """Make a folder of weights name classes in a file of code, which leaves a mark when it runs."""
    content = json.loads((folder / "config.json").read_text())
    classes = {"AutoConfig": "custom.Config", "AutoModel": "custom.Model", "AutoTokenizer": ["custom.T", None]}
    (folder / "config.json").write_text(json.dumps(content | {"model_type": model_type, "auto_map": classes}))
    (folder / "custom.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    return folder

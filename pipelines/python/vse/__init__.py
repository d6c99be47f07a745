"""Find images with words, and embed both, by a pretrained or a trained model.

    import vse

    gallery = vse.load("hf:openai/clip-vit-base-patch32").index("photos")
    print(gallery.search("a dog runs through the snow", k=5))

Training is a command, `vse full`. Nothing heavy is imported before a model is loaded.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vse.model import Model, load

__all__ = ["Model", "load"]


def __getattr__(name: str) -> Any:
    """Import torch and the rest when they are asked for."""
    if name not in __all__:
        raise AttributeError(f"the module vse has no {name}; it has {', '.join(__all__)}")
    return getattr(import_module("vse.model"), name)

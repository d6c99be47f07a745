"""Missing files of pretrained weights on this machine, before any work; names on the hub are asked later."""

from collections.abc import Mapping
from pathlib import Path

from preprocessing.reading import has_image_settings

NETWORK: Mapping[str, list[str]] = {"configuration": ["config.json"], "weights": ["*.safetensors"]}
OPEN_CLIP = {"weights": ["*.safetensors", "*.bin", "*.pth"]}
TOKENIZED_NETWORK = {**NETWORK, "tokenizer": ["tokenizer.json", "vocab.txt", "vocab.json"]}
# Begins the name of a pretrained model, `hf:NAME` or `hf:FOLDER`.
PRETRAINED = "hf:"
# The files that transformers loads from a folder of weights.
READ = ("*.json", "*.txt", "*.safetensors")


def missing_weights(weights: str, files: Mapping[str, list[str]]) -> str | None:
    """Return what a local folder of weights lacks, as `weights: ...` with what to do; None if nothing."""
    folder = Path(weights)
    if not folder.is_absolute():
        return None
    if not folder.is_dir():
        return f"weights: there is no folder {folder}; correct the path, or name a model on the hub"
    for what, patterns in files.items():
        if not any(file.is_file() for pattern in patterns for file in folder.glob(pattern)):
            return (
                f"weights: {folder} holds no {what} ({' or '.join(patterns)}); copy it there from the model's release"
            )
    broken = [file for pattern in READ for file in folder.glob(pattern) if not file.is_file()]
    return f"weights: {broken[0]} leads to no file; copy it there again, or remove it" if broken else None


def missing_image_settings(weights: str, remedy: str = "") -> str | None:
    """Return, as `missing_weights`, that a folder of weights does not say how images are prepared."""
    folder = Path(weights)
    if not folder.is_absolute() or has_image_settings(folder):
        return None
    return (
        f"weights: {folder} does not say how images are prepared (preprocessor_config.json, or of transformers 5 "
        f"processor_config.json): name a network that reads images, or copy the file there from its release{remedy}"
    )


def missing_torchvision(weights: str, architecture: str) -> str | None:
    """Return, as `missing_weights`, that a file of weights is missing; torchvision's names are identifiers."""
    if Path(weights).is_file() or weights.isidentifier():
        return None
    return (
        f"weights: there is no file {Path(weights).absolute()}; correct the path, or name weights that torchvision has "
        f"for {architecture}, such as IMAGENET1K_V2"
    )

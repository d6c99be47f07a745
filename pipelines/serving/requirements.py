"""The packages that a registered model needs, by what its bundle is made of."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pipelines.retrieval.gallery import Gallery

_ALL = (
    "mlflow",
    "nltk",
    "numpy",
    "pandas",
    "pillow",
    "safetensors",
    "tokenizers",
    "torch",
    "torchvision",
    "transformers",
    "xxhash",
)
# What names a network of timm: its place on the hub, transformers' types of it, its own settings.
_TIMM = ('"timm/', '"timm_wrapper"', '"timm_backbone"', '"pretrained_cfg"')
_OF_TEXTS = {"components": ("spacy",)}
_OF_EXTRACTORS = {"frames": ("av",)}
_OF_ADDRESSES = {"s3://": ("boto3",)}


def pip_requirements(bundle: Path) -> list[str]:
    """Return the packages, in the versions of this environment, with which a bundle embeds texts and images."""
    model = json.loads((bundle / "model" / "model.json").read_text(encoding="utf-8"))
    extractor = json.loads((bundle / "extractor" / "extractor.json").read_text(encoding="utf-8"))
    packages = {*_ALL, *_OF_TEXTS.get(model["text"].get("name"), ())}
    packages |= {package for name in _names(extractor) for package in _OF_EXTRACTORS.get(name, ())}
    uris = [record.image_uri for record in Gallery.load(bundle / "gallery").records]
    for scheme, needed in _OF_ADDRESSES.items():
        if any(uri.startswith(scheme) for uri in uris):
            packages |= {*needed}
    if model["image"].get("lora"):
        packages.add("peft")
    networks = [json.dumps([model["image"], extractor])]
    networks += [path.read_text(encoding="utf-8") for path in bundle.glob("extractor/*/config.json")]
    if any(name in network for name in _TIMM for network in networks):
        packages.add("timm")
    return [f"{package}=={version(package)}" for package in sorted(packages)]


def _names(extractor: dict[str, Any]) -> list[str]:
    """Return the name of an extractor, and of those that it is made of."""
    parts = extractor.get("options", {}).get("of") or []
    return [extractor["name"], *(name for part in parts for name in _names(part))]

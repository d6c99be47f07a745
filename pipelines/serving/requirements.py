"""The packages that a registered model needs, by what its bundle is made of."""

import json
from importlib.metadata import version
from pathlib import Path

from pipelines.retrieval.gallery import Gallery
from preprocessing.storage.address import is_s3

_INTERFACE = ("mlflow", "pandas")
_MODELS = ("nltk", "numpy", "pillow", "safetensors", "tokenizers", "torch", "torchvision", "transformers", "xxhash")
# What names a network of timm: its place on the hub, transformers' types of it, its own settings.
_TIMM = ('"timm/', '"timm_wrapper"', '"pretrained_cfg"')


def pip_requirements(bundle: Path) -> list[str]:
    """Return the packages, in the versions of this environment, with which a bundle embeds texts and images."""
    model = json.loads((bundle / "model" / "model.json").read_text(encoding="utf-8"))
    extractor = json.loads((bundle / "extractor" / "extractor.json").read_text(encoding="utf-8"))
    networks = [json.dumps([model["image"], extractor])]
    networks += [path.read_text(encoding="utf-8") for path in bundle.glob("extractor/*/config.json")]
    optional = {
        "spacy": model["text"].get("name") == "components",
        "av": extractor["name"] == "frames",
        "boto3": any(is_s3(record.image_uri) for record in Gallery.load(bundle / "gallery").records),
        "open_clip_torch": "open_clip" in (model["image"].get("architecture") or {}),
        "peft": bool(model["image"].get("lora")),
        "timm": any(name in network for name in _TIMM for network in networks),
    }
    packages = [*_INTERFACE, *_MODELS, *(package for package, is_needed in optional.items() if is_needed)]
    return [f"{package}=={version(package)}" for package in sorted(packages)]

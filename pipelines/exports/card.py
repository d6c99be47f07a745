"""The card of an exported model on the hub: how it is used, what it was made from, and metadata that the hub reads."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard, hf_hub_download

_SECONDS = 2.0
_LICENCE = ("license", "license_name", "license_link")
# Weights that have the form of a model's name on the hub; a folder of weights has none.
_ON_HUB = re.compile(r"[\w.-]+/[\w.-]+")
_INTERPOLATED = """The weights are {share:g} of the fine-tuned and {rest:g} of the zero-shot ones
(WiSE-FT, Wortsman et al. 2022). Metrics below, if any, are of the fine-tuned weights alone.

"""
_BIAS = """
Some items are near every query. `images_bias.onnx` and `texts_bias.onnx` take `embeddings` of images or texts that are
searched for, and give each one's `bias`: rank by the inner product less the item's bias."""
_OWN_USE = """```python
from sentence_transformers import SentenceTransformer  # with vse-pipeline installed, whose module is imported

model = SentenceTransformer("FOLDER_OR_NAME", trust_remote_code=True)
texts = model.encode(["a dog runs along the beach"])
```

`model` holds safetensors, JSON and what turns captions into tokens; `extractor` what images are read with.
"""
_OPEN_CLIP_USE = """```python
import open_clip

model, _, preprocess = open_clip.create_model_and_transforms("hf-hub:NAME")  # or local-dir:FOLDER
tokenizer = open_clip.get_tokenizer("hf-hub:NAME")
```
"""
_LIBRARY_USE = """```python
from PIL import Image
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("FOLDER_OR_NAME")
similarities = model.encode(["a dog runs along the beach"]) @ model.encode([Image.open("photo.jpg")]).T
```

transformers loads the same folder or name: `AutoModel.from_pretrained`, `AutoProcessor.from_pretrained`.
"""


OWN = "vse-pipeline"
# Libraries by the names that the hub has for them, and who else loads what is written for them.
LOADED_BY = {
    "transformers": "transformers, sentence-transformers",
    "open_clip": "open_clip",
    OWN: "sentence-transformers",
}
_USE = {"transformers": _LIBRARY_USE, "open_clip": _OPEN_CLIP_USE, OWN: _OWN_USE}


def hub_card(
    name: str, graphs: Mapping[str, float], library: str, weights: Iterable[str], about: str, share: float | None
) -> str:
    """Return the card in Markdown, with its metadata.

    `library` loads it (see `LOADED_BY`). `graphs` are those of ONNX, with their largest difference from PyTorch,
    `weights` what the model was fine-tuned from, `about` what its registration says, and `share` that of the fine-tuned
    weights, if they were interpolated.
    """
    towers = "".join(f"\n- `onnx/{file}`: at most {value:.1e} from PyTorch" for file, value in graphs.items())
    task = "sentence-similarity" if library == OWN else "zero-shot-image-classification"
    header: dict[str, Any] = {"library_name": library, "pipeline_tag": task}
    header |= {"tags": ["image-text-retrieval", "vse"], **_origin(list(weights))}
    return f"""---
{yaml.safe_dump(header, sort_keys=False, allow_unicode=True)}---

# {name}

A model of images and sentences in one space; the inner product of two vectors is their similarity.

{_USE[library]}
{"ONNX graphs, for inputs of any number and length:" + towers if towers else "This model has no ONNX form."}
{_BIAS if any("bias" in file for file in graphs) else ""}
{"" if share is None else _INTERPOLATED.format(share=share, rest=1 - share)}{about}"""


def _origin(weights: list[str]) -> dict[str, Any]:
    """Return the models on the hub that a model was fine-tuned from, and their licence, as far as both are known."""
    bases = [name for name in weights if _ON_HUB.fullmatch(name)]
    licences = [_licence(name) for name in weights]
    agreed = licences[0] if licences and all(licence == licences[0] for licence in licences) else {}
    return ({"base_model": bases[0] if len(bases) == 1 else bases} if bases else {}) | agreed


def _licence(weights: str) -> dict[str, Any]:
    """Return what the card of a model says about its licence; empty if it says nothing, or cannot be read."""
    path = Path(weights) / "README.md"
    try:
        if _ON_HUB.fullmatch(weights) and not path.is_file():
            path = Path(hf_hub_download(weights, path.name, etag_timeout=_SECONDS))
        said = ModelCard.load(path, ignore_metadata_errors=True).data.to_dict()
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return {key: said[key] for key in _LICENCE if said.get(key)}

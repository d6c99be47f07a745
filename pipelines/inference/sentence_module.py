"""An exported model as a module of sentence-transformers: `SentenceTransformer(folder, trust_remote_code=True)`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from sentence_transformers.base.modules.input_module import InputModule

from pipelines.inference.embedder import Embedder
from vse_core.digests import check_bundle

MODULES = "modules.json"


class VisualSemanticModule(InputModule):
    """Embeds texts, and images (PIL images) if the model has one view and reads image files."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        check_bundle(folder, str(folder))
        self.embedder = Embedder(folder / "model", folder / "extractor")
        self.model = self.embedder.model
        self.tokenizer = None  # the embedder has its own

    @classmethod
    def load(cls, model_name_or_path: str, **options: Any) -> VisualSemanticModule:
        """Load an exported model, by its folder or its name on the hub."""
        names = ("token", "cache_folder", "revision", "local_files_only")
        found = {key: options[key] for key in names if key in options}
        folder = cls.load_dir_path(model_name_or_path, subfolder="", **found)
        if folder is None:
            raise FileNotFoundError(f"there is no exported model {model_name_or_path}")
        return cls(Path(folder))

    @property
    def modalities(self) -> list[Any]:
        """The kinds of inputs."""
        return ["text", "image"] if self.embedder.takes_images else ["text"]

    def get_embedding_dimension(self) -> int:
        """Return D."""
        return int(self.embedder.embed_texts(["a"]).shape[1])

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_: Any) -> dict[str, Any]:
        """Pass inputs on; `forward` reads them."""
        return {"inputs": [prompt + item if prompt and isinstance(item, str) else item for item in inputs]}

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Embed texts or images: `sentence_embedding` (B, D); ValueError if an image has several views."""
        inputs = features["inputs"]
        if not isinstance(inputs[0], Image.Image):
            # A text that is too long is cut, as sentence-transformers' own modules cut it.
            return {"sentence_embedding": self.embedder.texts.embed(inputs)}
        images_BKD = self.embedder.embed_pil(inputs)
        if images_BKD.shape[1] > 1:
            raise ValueError(
                f"an image of this model is {images_BKD.shape[1]} vectors, and sentence-transformers keeps one: embed "
                "images with the pipeline itself"
            )
        return {"sentence_embedding": images_BKD[:, 0]}

    def save(self, output_path: str, *_: Any, **__: Any) -> None:
        """Raise ValueError: an exported folder is copied, not saved again."""
        raise ValueError(f"an exported model is not saved again: copy its folder to {output_path}")


def write_modules(folder: Path) -> None:
    """Write what sentence-transformers reads first: the list of modules, one."""
    path = f"{VisualSemanticModule.__module__}.{VisualSemanticModule.__name__}"
    modules = [{"idx": 0, "name": "0", "path": "", "type": path}]
    (folder / MODULES).write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")

"""Models in folders and on the Hugging Face hub: safetensors, JSON and a model card."""

import tempfile
from pathlib import Path
from typing import Any

from vse_core.models.bundle import load_model, save_model
from vse_core.models.model import Model

CARD = "README.md"
MODEL = "model"  # in the folder of an exported model, which has more than its weights
_HEADER = (
    "---\nlibrary_name: vse-pipeline\npipeline_tag: sentence-similarity\ntags: [image-text-retrieval, vse]\n---\n\n"
)


def card_text(text: str) -> str:
    """Return a model card in Markdown under the metadata that the hub reads."""
    return _HEADER + text


def save_pretrained(model: Model, specification: dict[str, Any], directory: Path | str, card: str = "") -> None:
    """Write a model with its card: ``model.safetensors``, ``model.json``, ``README.md``.

    ``specification`` is the arguments of :func:`~vse_core.models.build_model`; the card is Markdown without metadata.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    save_model(model, specification, directory)
    text = card or "# A visual-semantic embedding\n\n`vse_core.models.from_pretrained` loads it.\n"
    (directory / CARD).write_text(card_text(text), encoding="utf-8")


def from_pretrained(name: str | Path, revision: str | None = None, device: str = "cpu") -> Model:
    """Load a model from a folder, or by its name on the hub, in evaluation mode; errors are those of `load_model`."""
    folder = Path(name)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(str(name), revision=revision))
    return load_model(folder / MODEL if (folder / MODEL).is_dir() else folder, device)


def push_to_hub(
    model: Model, specification: dict[str, Any], repository: str, card: str = "", private: bool = False
) -> str:
    """Upload a model as :func:`save_pretrained` writes it, and return the address of the commit."""
    with tempfile.TemporaryDirectory(prefix="vse-hub-") as folder:
        save_pretrained(model, specification, folder, card)
        return push_folder(Path(folder), repository, private)


def push_folder(folder: Path, repository: str, private: bool = False) -> str:
    """Upload a folder to a model repository (OWNER/NAME), which is made where there is none."""
    from huggingface_hub import HfApi

    api = HfApi()
    api.create_repo(repository, private=private, exist_ok=True)
    return str(api.upload_folder(folder_path=folder, repo_id=repository))

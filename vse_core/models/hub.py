"""Folders of models on the Hugging Face hub, and their cards."""

from pathlib import Path

from huggingface_hub import HfApi

CARD = "README.md"
_HEADER = (
    "---\nlibrary_name: vse-pipeline\npipeline_tag: sentence-similarity\ntags: [image-text-retrieval, vse]\n---\n\n"
)


def card_text(text: str) -> str:
    """Return a model card in Markdown under the metadata that the hub reads."""
    return _HEADER + text


def push_folder(folder: Path, repository: str, private: bool = False) -> str:
    """Upload a folder to a model repository (OWNER/NAME), which is made if there is none."""
    api = HfApi()
    api.create_repo(repository, private=private, exist_ok=True)
    return str(api.upload_folder(folder_path=folder, repo_id=repository))

"""Folders of models on the Hugging Face hub, and their cards."""

from pathlib import Path

CARD = "README.md"
MODEL = "model"  # in the folder of an exported model, which has more than its weights
_HEADER = (
    "---\nlibrary_name: vse-pipeline\npipeline_tag: sentence-similarity\ntags: [image-text-retrieval, vse]\n---\n\n"
)


def card_text(text: str) -> str:
    """Return a model card in Markdown under the metadata that the hub reads."""
    return _HEADER + text


def local_folder(name: str | Path, revision: str | None = None) -> Path:
    """Return a folder, or the downloaded one of a model on the hub."""
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(str(name), revision=revision))


def push_folder(folder: Path, repository: str, private: bool = False) -> str:
    """Upload a folder to a model repository (OWNER/NAME), which is made where there is none."""
    from huggingface_hub import HfApi

    api = HfApi()
    api.create_repo(repository, private=private, exist_ok=True)
    return str(api.upload_folder(folder_path=folder, repo_id=repository))

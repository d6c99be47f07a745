"""The Hugging Face hub, asked before anything is loaded whether it has a model: the answer takes seconds."""

from contextlib import suppress
from pathlib import Path

from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HFValidationError, RepositoryNotFoundError

from vse_core.digests import first_line
from vse_core.open_clip_format import CONFIG, is_of_transformers, is_open_clip, open_clip

_CONFIG = "config.json"
_SECONDS = 2.0


def require_on_hub(weights: str) -> None:
    """Raise ValueError unless weights are a folder, or a model on the hub or in this machine's copy of it."""
    if Path(weights).expanduser().is_dir():
        return
    try:
        if any(isinstance(try_to_load_from_cache(weights, name), str) for name in (_CONFIG, CONFIG)):
            return
        with suppress(EntryNotFoundError):  # of open_clip, or of a detector
            get_hf_file_metadata(hf_hub_url(weights, _CONFIG), timeout=_SECONDS)
    except (RepositoryNotFoundError, HFValidationError):
        raise ValueError(
            f"there is no folder and no model on the hub called {weights!r}: correct the name (OWNER/NAME, as on "
            "huggingface.co), or log in if it is a private one (hf auth login)"
        ) from None
    except Exception as error:  # those of whichever HTTP client the hub's library has
        raise ValueError(
            f"there is no folder {weights!r}, and the hub does not answer ({first_line(error)}): where it does, run "
            f"`hf download {weights} --local-dir FOLDER`, copy that folder here and name it in place of {weights}"
        ) from error


def open_clip_source(weights: str) -> str | None:
    """Return what open_clip calls weights that it alone reads, `local-dir:FOLDER` or `hf-hub:NAME`, else None.

    ValueError if they are its own and the package is missing.
    """
    folder = Path(weights).expanduser()
    if folder.is_dir():
        source = f"local-dir:{folder}" if is_open_clip(folder) else None
    else:
        fetched = _fetch(weights, CONFIG) and (_fetch(weights, _CONFIG) or Path())
        source = f"hf-hub:{weights}" if fetched and not is_of_transformers(fetched) else None
    if source is not None:
        open_clip()
    return source


def _fetch(weights: str, file: str) -> Path | None:
    """Return a file of a model on the hub, or None if there is none, or the hub does not answer."""
    try:
        return Path(hf_hub_download(weights, file, etag_timeout=_SECONDS))
    except (OSError, EntryNotFoundError, ValueError):
        return None

"""The Hugging Face hub, asked before anything is loaded whether it has a model: the answer takes seconds."""

from pathlib import Path

from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

from vse_core.digests import first_line

_CONFIG = "config.json"
_SECONDS = 2.0


def require_on_hub(weights: str) -> None:
    """Raise ValueError unless weights are a folder, or a model on the hub or in this machine's copy of it."""
    if Path(weights).expanduser().is_dir():
        return
    try:
        if isinstance(try_to_load_from_cache(weights, _CONFIG), str):
            return
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

"""The options of commands that search: which model, which gallery, and where MLflow is."""

import argparse
import re
from pathlib import Path
from typing import Literal

from pipelines.retrieval.gallery_storage import GALLERIES, STATE, mirror_of, refresh
from pipelines.runtime.commands import command
from pipelines.schema.fields import default_work_dir
from preprocessing.storage.redaction import SecretAddress
from vse_core.digests import DigestError

Kind = Literal["text", "image"]
Target = Literal["images", "captions"]
# The help of `--model`.
MODELS = (
    "NAME (its champion, or its newest version if there is none), NAME@ALIAS, NAME/VERSION, a models:/ URI, the "
    "output directory of a register stage, or hf: and a folder or a name on the hub of a CLIP or SigLIP"
)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a registered model, or a gallery of images without captions with its model."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", help=MODELS)
    galleries = "a gallery of your own images (the command index, --name), searched with the model that embedded it"
    which.add_argument("--gallery", type=_existing, dest="model", metavar="GALLERY", help=galleries)
    add_tracking_option(parser)


def add_tracking_option(parser: argparse._ActionsContainer) -> None:
    """Add the option that names MLflow's address."""
    default = "sqlite in $VSE_WORK_DIR, or ~/vse-work"
    parser.add_argument("--tracking-uri", type=SecretAddress, help=f"MLflow address (default: {default})")


def default_tracking_uri() -> str:
    """Return the tracking address of a configuration that names none: sqlite in the work directory."""
    return f"sqlite:///{default_work_dir() / 'mlflow.db'}"


def gallery_folder(name: str) -> Path:
    """Return the folder of a gallery of images without captions; ArgumentTypeError if it cannot be called so."""
    if not re.fullmatch(r"\w[\w.-]{0,99}", name):
        raise argparse.ArgumentTypeError(
            f"{name[:99]!r} cannot name a gallery: use at most 100 letters, digits, '_', '-' and '.'"
        )
    return default_work_dir() / GALLERIES / name


def _existing(name: str) -> str:
    folder = gallery_folder(name)
    try:
        refresh(folder)
    except DigestError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not (folder / STATE).is_file():
        stored = f" and none in {address}" if (address := mirror_of(folder).address) else ""
        known = ", ".join(sorted(path.parent.name for path in folder.parent.glob(f"[!.]*/{STATE}"))) or "none yet"
        made = command("index", "--model", "MODEL", "--images", "FOLDER", "--name", name)
        raise argparse.ArgumentTypeError(f"no gallery {name!r} in {folder.parent} ({known}){stored}; {made} makes it")
    return str(folder)

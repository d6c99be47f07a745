"""The index command: of the evaluated model of a configuration, or of your own images, which need no captions."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from pipelines.config import load_config
from pipelines.registry.models import pin
from pipelines.retrieval.options import MODELS, add_tracking_option, default_tracking_uri, gallery_folder
from pipelines.runtime.cli import make_parser, number_in, say
from pipelines.runtime.commands import command
from pipelines.schema.compression import Compression
from pipelines.stages.runner import run_stages
from preprocessing.storage.address import is_s3


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, and index the evaluated model, or make, update or delete a gallery of images."""
    parser = make_parser()
    smaller = "smaller vectors: pca128-int8 (any width), pca256, int8, float16; none: full ones again"
    parser.add_argument("--compress", metavar="FORM", help=smaller)
    own = parser.add_argument_group("your own images, without captions")
    own.add_argument("--name", type=gallery_folder, metavar="GALLERY", help="name of the gallery", dest="folder")
    own.add_argument("--model", help=f"{MODELS}; default: the one that the gallery has")
    add_tracking_option(own)
    images = "folder (local or s3://), or table with a column `image` (.csv, .tsv, .jsonl, .parquet)"
    own.add_argument("--images", type=_address, metavar="ADDRESS", help=f"{images}; default: those of the gallery")
    own.add_argument("--actors", type=number_in(int, 1), help="processes with the model (default 1)")
    own.add_argument("--delete", action="store_true", help="delete the gallery; the images stay")
    options = parser.parse_args(arguments)
    _refuse_options_without_effect(parser, options)
    try:
        Compression.parse(None if options.compress == "none" else options.compress)
    except ValueError as error:
        parser.error(f"--compress {error}")
    if options.folder is None:
        form = "null" if options.compress == "none" else options.compress
        compress = [f"index.compress={form}"] if form else []
        config = load_config(options.config, [*options.set, *compress]).for_dry_run(options.dry_run)
        run_stages(config, ["index"], options.dry_run)
        if compress and not options.dry_run:
            chosen = ["--config", str(options.config)] if options.config else []
            again = [word for value in (*options.set, *compress) for word in ("--set", value)]
            say(f"a version of the model with this index: {command('register', *chosen, *again)}")
        return
    if options.model:  # a name that is wrong is told within seconds
        options.model = pin(options.model, options.tracking_uri or default_tracking_uri())
    from pipelines.retrieval.index_images import index_images  # torch, FAISS and Ray, which planning does without

    index_images(options)


def _refuse_options_without_effect(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    of_images = ("model", "tracking_uri", "images", "actors", "delete")
    others = ("config", "set") if options.folder else of_images
    given = [f"--{name.replace('_', '-')}" for name in others if vars(options)[name]]
    if given and options.folder:
        parser.error(f"--name is of your own images, {given[0]} of an evaluated model: give one of them")
    if given:
        parser.error(f"{given[0]} is of your own images: give their gallery a --name")


def _address(images: str) -> str:
    # Not Path.absolute, which keeps "..".
    return images.rstrip("/") if is_s3(images) else os.path.abspath(Path(images).expanduser())  # noqa: PTH100

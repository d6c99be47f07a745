"""The index command for images without captions: what is new or changed is embedded, and what is gone is removed."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pipelines.retrieval import image_gallery
from pipelines.retrieval.image_files import ImageFile, list_images
from pipelines.retrieval.image_gallery import Embedded
from pipelines.retrieval.search_model import add_tracking_option, default_tracking_uri, gallery_folder
from pipelines.runtime import cluster
from pipelines.runtime.cli import CommandParser, number_in, say
from pipelines.runtime.commands import command
from pipelines.runtime.lock import exclusive
from pipelines.runtime.progress import progress_bar
from pipelines.runtime.stage import StageError, disk_errors, fingerprint
from preprocessing.datasets.table import read_columns
from preprocessing.storage import Mirror, is_s3

if TYPE_CHECKING:
    from pipelines.inference.embedder import Embedder

OPTION = "--name"

# Images of a part, which is what a killed process loses at most of each actor.
_PART = 256
_BATCH = 32
_TIMEOUT = 60.0  # seconds for an image
_REPORT = "skipped.csv"


class _Skipped(NamedTuple):
    """An image that cannot be embedded; one with a version is not tried again until it has another."""

    image: str
    version: str
    reason: str

    @classmethod
    def of(cls, file: ImageFile, reason: str, version: str = "") -> _Skipped:
        """Skip a file; of a name that is not UTF-8 the odd bytes are spelt out."""
        return cls(file.image_id.encode(errors="backslashreplace").decode(), version, reason)


_SKIPPED = pa.schema(dict.fromkeys(_Skipped._fields, pa.string()))


class _Update(NamedTuple):
    """An update of a gallery: the rows that stay, the images to embed and to skip, and how many change or go."""

    kept: list[pa.Table]
    todo: list[ImageFile]
    skipped: list[_Skipped]
    changed: int
    removed: int


class _Embedding:
    """An actor of the pool: embeds images with a model of its own."""

    def __init__(self, bundle: Path, root: str) -> None:
        self._bundle, self._root = bundle, root
        self._embedder: Embedder

    def prepare(self) -> None:
        """Load the model."""
        from pipelines.inference.embedder import Embedder

        self._embedder = Embedder(self._bundle / "model", self._bundle / "extractor")

    def work(self, files: Sequence[ImageFile]) -> tuple[Embedded | None, list[_Skipped]]:
        """Return the images that can be embedded, and the others with their reasons."""
        return embed_files(self._embedder, files, self._root)


def embed_files(embedder: Embedder, files: Sequence[ImageFile], root: str) -> tuple[Embedded | None, list[_Skipped]]:
    """Embed images batch by batch while a thread decodes the next; links that lead out of `root` are skipped."""
    from preprocessing.extraction.image_loader import ImageLoader
    from preprocessing.features.images import ImageError, TemporaryImageError, inside, read_image_bytes, thumbnail

    skipped: list[_Skipped] = []

    def readable() -> Iterator[tuple[ImageFile, Any]]:
        for file, image in loader.load(files, lambda each: each.image_uri):
            if isinstance(image, ImageError):
                version = "" if isinstance(image, TemporaryImageError) else file.version
                skipped.append(_Skipped.of(file, str(image), version))
            else:
                yield file, image

    def load(uri: str) -> tuple[Any, bytes]:
        small: list[bytes] = []
        image = embedder.decode(read_image_bytes(inside(root, uri)), lambda decoded: small.append(thumbnail(decoded)))
        return image, small[0]

    embedded, vectors, thumbnails = [], [], []
    with ImageLoader(load, 1, 2 * _BATCH, _TIMEOUT) as loader:
        images = readable()
        while batch := list(islice(images, _BATCH)):
            embedded += [file for file, _ in batch]
            vectors.append(embedder.embed_decoded([image for _, (image, _) in batch]).numpy())
            thumbnails += [small for _, (_, small) in batch]
    return Embedded(embedded, np.concatenate(vectors), thumbnails) if vectors else None, skipped


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, and make, update or delete a gallery."""
    options = _parsed(arguments)
    folder: Path = options.folder
    if options.dry_run:
        _run(options, folder)
        return
    with exclusive(Mirror(folder.parents[1]), folder):
        _run(options, folder)


def _run(options: argparse.Namespace, folder: Path) -> None:
    from pipelines.registry.models import find_bundle

    if options.delete:
        _delete(folder, options.dry_run)
        return
    found = image_gallery.read_state(folder)
    reference = options.model or (found or {}).get("model")
    images = _address(options.images or (found or {}).get("images", ""))
    if not reference or not images:
        raise StageError(f"there is no gallery {folder.name!r} yet: give --model and --images to make it")
    if found is not None and found["images"] != images:
        raise StageError(
            f"the gallery {folder.name!r} is of {found['images']}: give the images of {images} another {OPTION}, or "
            "remove that gallery first (--delete)"
        )
    tracking_uri = options.tracking_uri or default_tracking_uri()
    name, bundle = find_bundle(reference, tracking_uri)
    origin = image_gallery.bundle_origin(bundle)
    files, others = list_images(images)
    state = {"current": None, **(found or {}), "images": images, "origin": origin}
    state["model"] = name
    parts = folder / image_gallery.PARTS / fingerprint(origin)[:16]
    update = _plan(folder, found, origin, files, parts)
    summary = (
        f"{folder.name}: {len(files):,} images in {images} ({others:,} other files): {len(update.todo):,} to embed "
        f"({update.changed:,} changed), {update.removed:,} to remove, {len(update.skipped):,} to skip"
    )
    say(summary)
    current = found is not None and found["origin"] == origin and not parts.exists()
    if current and not update.todo and not update.removed:
        listed = "" if options.dry_run else _listed(folder, update.skipped)
        say(f"{folder.name}: up to date{listed}")
        if state != found and not options.dry_run:  # the same model under another version
            image_gallery.write_state(folder, state)
    elif not options.dry_run:
        with disk_errors("index", folder):
            done = _embed(update.todo, bundle, images, folder, parts, options.actors)
            _apply(folder, state, update, done, len(files))
    if not options.model and (newer := image_gallery.newer_model(folder, tracking_uri)):
        say(newer)


def _plan(
    folder: Path,
    found: dict[str, Any] | None,
    origin: dict[str, str],
    files: Sequence[ImageFile],
    parts: Path,
) -> _Update:
    """Compare the images with the rows of the gallery, if the same model has embedded them, and of finished parts."""
    current = found is not None and found["origin"] == origin
    failed = _read_skipped(folder) if current else {}
    tables = [image_gallery.load_table(folder, found)] if found is not None and current else []
    indexed = {file.image_id for table in tables for file in image_gallery.image_files(table)}
    tables += [pyarrow.parquet.read_table(path) for path in sorted(parts.glob("*.parquet"))]
    wanted, kept = set(files), []
    stay: set[str] = set()
    for table in tables:
        rows = image_gallery.image_files(table)
        stays = [row in wanted for row in rows]
        stay.update(row.image_id for row in rows if row in wanted)
        wanted -= set(rows)
        kept.append(table.filter(pa.array(stays, pa.bool_())))
    reasons = {file: file.fault or failed.get((file.image_id, file.version), "") for file in sorted(wanted)}
    todo = [file for file, reason in reasons.items() if not reason]
    skipped = [
        _Skipped.of(file, reason, "" if file.fault else file.version) for file, reason in reasons.items() if reason
    ]
    new = {file.image_id for file in todo}
    return _Update(kept, todo, skipped, len(indexed & new), len(indexed - stay - new))


def _embed(
    todo: Sequence[ImageFile], bundle: Path, images: str, folder: Path, parts: Path, actors: int
) -> tuple[list[pa.Table], list[_Skipped]]:
    """Embed images in Ray actors; a finished part is written, and is not done again if this process is killed."""
    if not todo:
        return [], []
    cluster.connect(None)
    import ray

    from pipelines.runtime.actor_pool import ActorPool

    gpus = 1 if ray.cluster_resources().get("GPU") else 0
    actor = ray.remote(_Embedding).options(num_cpus=1, num_gpus=gpus, runtime_env={"env_vars": cluster.KEEP_MEMORY})
    root = images if Path(images).is_dir() else ""
    chunks = [todo[start : start + _PART] for start in range(0, len(todo), _PART)]
    done = ActorPool(
        start=lambda: actor.remote(bundle, root),
        size=min(actors, len(chunks)),
        items=chunks,
        describe=lambda chunk: f"the images from {chunk[0].image_id} to {chunk[-1].image_id}",
    ).results()
    tables, skipped = [], []
    with progress_bar("embed", len(todo), "images") as bar:
        for embedded, refused in done:
            skipped += refused
            if embedded is not None:
                tables.append(image_gallery.write_part(folder, parts, embedded))
            bar.update((len(embedded.files) if embedded is not None else 0) + len(refused))
    return tables, skipped


def _apply(
    folder: Path, state: dict[str, Any], update: _Update, done: tuple[list[pa.Table], list[_Skipped]], images: int
) -> None:
    """Publish what has changed, list the skipped images, and say what was done."""
    tables, skipped = done
    listed = _listed(folder, [*update.skipped, *skipped])
    rows = pa.concat_tables([*update.kept, *tables]) if update.kept or tables else None
    if rows is None or not rows.num_rows:
        raise StageError(f"none of the {images:,} images can be embedded{listed}")
    order = np.argsort(np.array(rows["image_id"].to_pylist()))
    image_gallery.publish(folder, state, rows.take(pa.array(order)))
    embedded = sum(table.num_rows for table in tables)
    say(f"{folder.name}: {rows.num_rows:,} images; {embedded:,} embedded, {update.removed:,} removed{listed}")
    say(f"search: {command('search', '--gallery', folder.name, 'TEXT')}")


def _listed(folder: Path, skipped: Sequence[_Skipped]) -> str:
    """Write the list of skipped images; return what is said of it."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = pa.Table.from_pylist([each._asdict() for each in sorted(skipped)], _SKIPPED)
    pyarrow.csv.write_csv(rows, folder / _REPORT)
    return f", {len(skipped):,} skipped (reasons: {folder / _REPORT})" if skipped else ""


def _read_skipped(folder: Path) -> dict[tuple[str, str], str]:
    """Return why the last update has skipped images, by image and version; nothing of an earlier release's list."""
    try:
        images, versions, reasons = read_columns(folder / _REPORT, _Skipped._fields)
    except ValueError:
        return {}
    return dict(zip(zip(images, versions, strict=True), reasons, strict=True))


def _delete(folder: Path, dry_run: bool) -> None:
    if not (folder / image_gallery.STATE).is_file():
        raise StageError(f"there is no gallery {folder.name!r} in {folder.parent}")
    say(f"{folder.name}: {folder} {'would be' if dry_run else 'is'} deleted; the images stay")
    if not dry_run:
        shutil.rmtree(folder)


def _address(images: str) -> str:
    return images.rstrip("/") if is_s3(images) or not images else str(Path(images).expanduser().absolute())


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandParser(prog="index.py")
    parser.add_argument("--model", help="registered model, as for search.py; default: the version that the gallery has")
    add_tracking_option(parser)
    images = "folder (local or s3://), or table with a column `image` (.csv, .tsv, .parquet)"
    parser.add_argument("--images", metavar="ADDRESS", help=f"{images}; default: those of the gallery")
    parser.add_argument(OPTION, required=True, metavar="GALLERY", help="name of the gallery", dest="gallery")
    parser.add_argument("--actors", type=number_in(int, 1), default=1, help="processes with the model (default 1)")
    parser.add_argument("--delete", action="store_true", help="delete the gallery; the images stay")
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")
    parser.add_argument("--wait", action="store_true", help="wait for another process at this gallery to end")
    options = parser.parse_args(arguments)
    try:
        options.folder = gallery_folder(options.gallery)
    except ValueError as error:
        parser.error(f"{OPTION}: {error}")
    return options

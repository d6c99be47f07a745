"""The update of a gallery of images without captions: new and changed ones are embedded, and gone ones removed."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from safetensors import safe_open

from pipelines.registry.models import CORRECTION, find_bundle
from pipelines.retrieval import image_gallery
from pipelines.retrieval.correction import Correction
from pipelines.retrieval.embed_images import Skipped, embed_images
from pipelines.retrieval.gallery import EMBEDDINGS, GalleryError, read_columns
from pipelines.retrieval.gallery_storage import SKIPPED, STATE, delete, mirror_of, publish_state
from pipelines.retrieval.image_files import IMAGE, ImageFile, list_images, read_metadata, rows_of
from pipelines.retrieval.options import default_tracking_uri
from pipelines.runtime.cli import say
from pipelines.runtime.commands import command
from pipelines.runtime.lock import exclusive
from pipelines.runtime.stage import StageError, disk_errors, fingerprint
from pipelines.schema.compression import Compression
from pipelines.schema.weights import PRETRAINED
from preprocessing.datasets.table import read_columns as read_table_columns
from vse_core.digests import DigestError, check_digests

_SKIPPED = pa.schema(dict.fromkeys(Skipped._fields, pa.string()))


def index_images(options: argparse.Namespace) -> None:
    """Make, update or delete the gallery in `options.folder`; a dry run says what would be done."""
    folder: Path = options.folder
    run = _delete if options.delete else _update
    if options.dry_run:
        run(folder, options)
        return
    with exclusive(mirror_of(folder), folder), disk_errors("index", folder):
        run(folder, options)


def _delete(folder: Path, options: argparse.Namespace) -> None:
    mirror = mirror_of(folder)
    where = f"{folder.parent}{f' and in {mirror.address}' if mirror.address else ''}"
    # One that was never finished has no state.
    if not folder.is_dir() and not mirror.has(folder / STATE):
        raise StageError(f"no gallery {folder.name!r} in {where}")
    say(f"{folder.name}: {'would be' if options.dry_run else 'is'} deleted in {where}; the images stay")
    if not options.dry_run:
        delete(mirror, folder)


def _update(folder: Path, options: argparse.Namespace) -> None:
    found = image_gallery.read_state(folder) or {"current": None}
    reference, images = options.model or found.get("model"), options.images or found.get("images")
    if not reference or not images:
        raise StageError(f"there is no gallery {folder.name!r} yet: give --model and --images to make it")
    if found.get("images", images) != images:
        raise StageError(
            f"the gallery {folder.name!r} is of {found['images']}: give the images of {images} another --name, or "
            "remove that gallery first (--delete)"
        )
    tracking_uri = options.tracking_uri or default_tracking_uri()
    model, bundle = find_bundle(reference, tracking_uri)
    state = {**found, "model": model, "images": images, "origin": image_gallery.bundle_origin(bundle)}
    if (mirror := mirror_of(folder)).address:
        state["storage"] = mirror.address
        if model.startswith(PRETRAINED) and not options.dry_run:  # it may have been saved before there was a storage
            mirror.push_missing(bundle, [path.relative_to(bundle).as_posix() for path in bundle.rglob("*")])
    if options.compress:
        state["compression"] = None if options.compress == "none" else options.compress
    files, others = list_images(images)
    bank = Correction.load(bundle / CORRECTION)
    _require_compressible(state.get("compression"), options.compress, bundle, bank, len(files))
    metadata = _metadata(folder, images)
    parts = folder / image_gallery.PARTS / fingerprint(state["origin"])[:16]
    published = _published(folder, found) if found.get("origin") == state["origin"] else None
    kept, todo, skipped, removed = _plan(folder, published, files, sorted(parts.glob("*.parquet")))
    is_new = published is not None and (
        state.get("compression") != found.get("compression")
        or not _is_sound(folder / found["current"])
        or _has_other_columns(folder, found, metadata)
        or (mirror.address is not None and "-" not in found["current"])  # a version that is not named by its files
    )
    say(
        f"{folder.name}: {len(files):,} images in {images} ({others:,} other files): {len(todo):,} to embed, "
        f"{removed:,} to remove, {len(skipped):,} to skip{', with other columns or another form' if is_new else ''}"
    )
    if published is not None and not (parts.exists() or todo or removed or is_new):
        say(f"{folder.name}: up to date{'' if options.dry_run else _listed(folder, skipped)}")
        if state != found and not options.dry_run:  # the same model under another version, or another storage
            publish_state(folder, state, image_gallery.thumbnails(folder, published).values())
    elif not options.dry_run:
        tables, refused = embed_images(todo, bundle, images, folder, parts, options.actors or 1)
        listed = _listed(folder, skipped + refused)
        rows = pa.concat_tables(kept + tables) if kept or tables else None
        if rows is None or not rows.num_rows:
            raise StageError(f"none of the {len(files):,} images can be embedded{listed}")
        rows = rows.take(pc.sort_indices(rows["image_id"]))
        try:
            facts = image_gallery.publish(folder, state, rows, published, metadata, bank)
        except GalleryError as error:
            raise StageError(f"{folder.name}: {error}") from error
        embedded = sum(table.num_rows for table in tables)
        gone = 0 if published is None else len(_ids(published) - _ids(rows))  # to embed one may have failed
        say(f"{folder.name}: {rows.num_rows:,} images; {embedded:,} embedded, {gone:,} removed{listed}")
        say(f"{folder.name}: index: {facts}")
        if bank is None:
            say(f"{folder.name}: hubs are not corrected: {model} has no bank of training captions")
        _say_what_comes_next(folder.name)
    if not options.model and (newer := image_gallery.newer_model(folder, tracking_uri)):
        say(newer)


def _say_what_comes_next(gallery: str) -> None:
    say(f"search: {command('search', '--gallery', gallery, 'TEXT')}")
    say(f"page: {command('serve', '--gallery', gallery)}")


def _require_compressible(
    name: str | None, given: str | None, bundle: Path, bank: Correction | None, images: int
) -> None:
    """Refuse a compression that cannot be fitted, `given` now or kept from before, before anything is embedded."""
    if name is None or not (bundle / "gallery").is_dir():  # of a pretrained model nothing is embedded yet
        return
    with safe_open(bundle / "gallery" / EMBEDDINGS, "pt") as gallery:
        _, views, dim = gallery.get_slice("images_BKD").get_shape()
    vectors = images * views if bank is None else bank.images_MKD.flatten(0, 1).shape[0] + len(bank.texts_MD)
    try:
        Compression.parse(name).require(vectors, dim)
    except ValueError as error:
        remedy = "" if given else "; the gallery has had this form: --compress none keeps whole vectors"
        raise StageError(f"--compress {error}{remedy}") from error


def _metadata(folder: Path, images: str) -> pa.Table | None:
    """Read the columns of a table of images; say which of them are kept."""
    metadata, others, repeated = read_metadata(images)
    if metadata is not None and (metadata.num_columns > 1 or others):
        left_out = f"; left out, as no condition can name their values: {', '.join(others)}" if others else ""
        say(f"{folder.name}: columns {', '.join(metadata.column_names)}{left_out}")
        if repeated:
            say(f"{folder.name}: {repeated:,} rows name an image again: of each image the first row counts")
    return metadata


def _has_other_columns(folder: Path, found: dict[str, Any], metadata: pa.Table | None) -> bool:
    """Return whether the columns of the images of a gallery are others, or have other values, than it has kept."""
    if metadata is None:
        return False
    kept = read_columns(folder / found["current"])
    if kept is None:
        return bool(metadata.num_columns > 1)
    is_there = pc.is_in(kept[IMAGE], metadata[IMAGE])
    rows = rows_of(metadata, kept[IMAGE].filter(is_there))
    return bool(not _comparable(kept.filter(is_there)).equals(_comparable(rows)))


def _comparable(columns: pa.Table) -> pa.Table:
    """Return columns with lists of floats as lists of texts, because NaN is not equal to itself."""
    for place, field in enumerate(columns.schema):
        if pa.types.is_nested(field.type) and pa.types.is_floating(field.type.value_type):
            columns = columns.set_column(place, field.name, columns[place].cast(pa.list_(pa.string())))
    return columns


def _published(folder: Path, state: dict[str, Any]) -> pa.Table | None:
    """Return the rows of a gallery; None if they are damaged, which is said."""
    try:
        return image_gallery.load_table(folder, state)
    except DigestError as error:
        say(f"{error.reason}: the images are embedded again")
        return None


def _is_sound(current: Path) -> bool:
    """Return whether the files of a gallery are as they were written; if not, say which one is not."""
    try:
        check_digests(current)
    except DigestError as error:
        say(f"{error.reason}: index and columns are written again")
        return False
    return True


def _plan(
    folder: Path, published: pa.Table | None, files: Sequence[ImageFile], parts: Sequence[Path]
) -> tuple[list[pa.Table], list[ImageFile], list[Skipped], int]:
    """Compare the images with the rows that the same model has embedded: of the gallery, and of finished parts.

    Returns the rows that stay, the images to embed and to skip, and the number that goes.
    """
    tables = [] if published is None else [published]
    tables += [pyarrow.parquet.read_table(path) for path in parts]
    missing, kept = set(files), []
    for embedded in tables:
        rows = image_gallery.image_files(embedded)
        kept.append(embedded.filter(pa.array([row in missing for row in rows], pa.bool_())))
        missing -= set(rows)
    failed = {} if published is None else _read_skipped(folder)
    todo, skipped = [], []
    for file in sorted(missing):
        if file.fault:
            skipped.append(Skipped.of(file, file.fault))
        elif reason := failed.get((file.image_id, file.version)):
            skipped.append(Skipped.of(file, reason, file.version))
        else:
            todo.append(file)
    before = set() if published is None else _ids(published)
    after = {file.image_id for file in todo}.union(*map(_ids, kept))
    return kept, todo, skipped, len(before - after)


def _ids(rows: pa.Table) -> set[str]:
    return set(rows["image_id"].to_pylist())


def _listed(folder: Path, skipped: Sequence[Skipped]) -> str:
    """Write the list of skipped images; return what is said of it."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = pa.Table.from_pylist([each._asdict() for each in sorted(skipped)], _SKIPPED)
    pyarrow.csv.write_csv(rows, folder / SKIPPED)
    return f", {len(skipped):,} skipped (reasons: {folder / SKIPPED})" if skipped else ""


def _read_skipped(folder: Path) -> dict[tuple[str, str], str]:
    """Return why the last update has skipped images, by image and version; nothing of an earlier release's list."""
    try:
        images, versions, reasons = read_table_columns(folder / SKIPPED, Skipped._fields)
    except ValueError:
        return {}
    return dict(zip(zip(images, versions, strict=True), reasons, strict=True))

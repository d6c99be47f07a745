"""The export command: a registered model becomes a folder for the hub, sentence-transformers and ONNX runtimes."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.exports.card import LOADED_BY, OWN, hub_card
from pipelines.inference.start import read_start
from pipelines.retrieval.options import add_model_options, default_tracking_uri
from pipelines.runtime.cli import CommandParser, say
from pipelines.runtime.stage import StageError, disk_errors
from pipelines.schema.fields import DECIMAL
from pipelines.schema.weights import PRETRAINED

if TYPE_CHECKING:
    from pipelines.inference.embedder import Embedder
    from pipelines.retrieval.correction import Correction

PACKAGES = ("onnx", "onnxscript", "onnxruntime", "sentence_transformers")
ONNX, CARD = "onnx", "README.md"
_TABLE = ".parquet"
INTERPOLATE = (
    "of a fine-tuned dual encoder: the share of its weights, from 0 to 1; the rest are those that it began with"
)
# Embeddings have unit length: a larger difference does not come from rounding.
TOLERANCE = 1e-4
_CAPTIONS = ("a dog", "two people sit on a bench in front of a white house", "a man in a red shirt rides a bicycle")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, export, check, and push if asked."""
    parser = CommandParser()
    add_model_options(parser)
    parser.add_argument("--interpolate", type=_share, metavar="SHARE", help=INTERPOLATE)
    outputs = "a new folder for the model, or a file (.parquet) for its gallery, or one's own with --gallery"
    parser.add_argument("--output", type=Path, required=True, metavar="PATH", help=outputs)
    parser.add_argument("--push", metavar="OWNER/NAME", help="upload the folder to a repository on the hub")
    parser.add_argument("--private", action="store_true", help="with --push: make the repository a private one")
    parser.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")
    options = parser.parse_args(arguments)
    _require(options)
    tracking_uri = options.tracking_uri or default_tracking_uri()
    if options.output.suffix.lower() == _TABLE:
        _export_table(options, tracking_uri)
        return
    from pipelines.registry.models import find_bundle, newer_version

    name, bundle = find_bundle(options.model, tracking_uri)
    if newer := newer_version(name, tracking_uri):
        say(newer)
    if options.dry_run:
        say(f"would export {name} to {options.output}" + (f" and push it to {options.push}" if options.push else ""))
        return
    try:
        with disk_errors("export", options.output):
            lines = export_bundle(name, bundle, options.output, options.interpolate)
    except BaseException:  # half a folder would be refused as one that is there already
        shutil.rmtree(options.output, ignore_errors=True)
        raise
    for line in lines:
        say(line)
    if options.push:
        say(f"pushed: {push_folder(options.output, options.push, options.private)}")


def _export_table(options: argparse.Namespace, tracking_uri: str) -> None:
    from pipelines.exports.gallery_table import export_gallery

    if options.dry_run:
        say(f"would export the gallery of {options.model} to {options.output}")
        return
    with disk_errors("export", options.output):
        say(export_gallery(options.model, tracking_uri, options.output))


def _share(text: str) -> float:
    if not DECIMAL.fullmatch(text) or not 0 <= float(text) <= 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1, got {text!r:.60}")
    return float(text)


def push_folder(folder: Path, repository: str, private: bool) -> str:
    """Upload a folder to a model repository (OWNER/NAME) on the hub, which is made if there is none."""
    from huggingface_hub import HfApi

    api = HfApi()
    api.create_repo(repository, private=private, exist_ok=True)
    return str(api.upload_folder(folder_path=folder, repo_id=repository))


def export_bundle(name: str, bundle: Path, output: Path, share: float | None = None) -> list[str]:
    """Write a bundle's model into a new folder; return what was written, a line each.

    A dual encoder leaves in the format of transformers or open_clip; of other models `model` and `extractor` as they
    are registered, with `modules.json` for sentence-transformers. `onnx` has both towers if they have that form,
    `README.md` the model's card. With a `share` of the fine-tuned weights, a dual encoder's are interpolated with those
    that it began with. Raises StageError for a model without embeddings, if ONNX gives other vectors than PyTorch, and
    as `interpolate`.
    """
    from pipelines.exports.interpolation import interpolate
    from pipelines.inference.embedder import Embedder
    from pipelines.kinds import saved_kind
    from pipelines.registry.models import CORRECTION, MODEL_CARD, unpinned
    from pipelines.retrieval.correction import Correction
    from vse_core.digests import write_digests
    from vse_core.models.onnx import OnnxError

    try:
        kind = saved_kind(bundle / "model")
    except ValueError as error:
        raise StageError(f"{name} cannot be exported: {error}") from error
    if not kind.has_embeddings:
        raise StageError(f"{name}: {kind.title} compares each image with each text and has no vectors "
                         "to export; export a two-tower model or UniVSE")  # fmt: skip
    output.mkdir(parents=True, exist_ok=True)
    embedder = Embedder(bundle / "model", bundle / "extractor", device="cpu")
    logits = None if share is None else interpolate(embedder.model, bundle / "model", share)
    library = _write_model(embedder, bundle, output, logits)
    lines = [f"{LOADED_BY[library]}: {output}"]
    if share is None and (bundle / CORRECTION).is_dir():  # which is of the vectors that the model had
        shutil.copytree(bundle / CORRECTION, output / CORRECTION)
    if parts := [part for part in ("model", "extractor", CORRECTION) if (output / part).is_dir()]:
        write_digests(output, *parts)
    try:
        found = _write_onnx(embedder, Correction.load(output / CORRECTION), output / ONNX)
        lines += [f"ONNX: {output / ONNX / file}, {value:.1e} from PyTorch at most" for file, value in found.items()]
    except OnnxError as error:
        found = {}
        lines.append(f"ONNX: none ({error})")
    told = bundle / MODEL_CARD
    about = told.read_text(encoding="utf-8").partition("\n")[2].lstrip() if told.is_file() else ""
    weights = list(read_start(bundle / "model"))
    if name.startswith(PRETRAINED):
        weights = [unpinned(name).removeprefix(PRETRAINED)]
        about = f"The weights are those of `{weights[0]}`, whose card names its data and licence.\n"
    (output / CARD).write_text(hub_card(name, found, library, weights, about, share), encoding="utf-8")
    return lines


def _write_model(embedder: Embedder, bundle: Path, output: Path, logits: Mapping[str, float] | None) -> str:
    """Write the model of a bundle, with what other programs load it by; return whose format it is."""
    from pipelines.exports.published_format import write_published
    from pipelines.inference.sentence_module import write_modules

    if library := write_published(embedder.model, bundle / "model", output, logits):
        return library
    for part in ("model", "extractor"):
        shutil.copytree(bundle / part, output / part)
    embedder.model.save(output / "model")  # as it is loaded: with low-rank updates merged
    write_modules(output)
    return OWN


def _write_onnx(embedder: Embedder, correction: Correction | None, folder: Path) -> Mapping[str, float]:
    from vse_core.models.onnx import IMAGES_BIAS, TEXTS_BIAS, export_bias, export_onnx, onnx_difference

    export_onnx(embedder.model, folder)
    found = onnx_difference(embedder.model, folder, list(embedder.texts.batches(_CAPTIONS)))
    if correction is not None:
        images_MKD, temperature = correction.images_MKD, correction.temperature
        texts_M1D = correction.texts_MD.unsqueeze(1)
        found[IMAGES_BIAS] = export_bias(texts_M1D, temperature, images_MKD.shape[1], folder / IMAGES_BIAS)
        found[TEXTS_BIAS] = export_bias(images_MKD, temperature, 0, folder / TEXTS_BIAS)
    for file, value in found.items():
        if value > TOLERANCE:
            raise StageError(
                f"{folder / file} differs by {value:.1e} from the model, more than {TOLERANCE}: "
                "do not use it, and report the model"
            )
    return found


def _require(options: argparse.Namespace) -> None:
    """Raise StageError before any work: a package is missing, or the folder is there already."""
    is_table, is_gallery = options.output.suffix.lower() == _TABLE, (Path(options.model) / "gallery.json").is_file()
    if is_gallery and not is_table:
        raise StageError(f"--output {options.output}: a gallery of one's own images is exported as one file, .parquet")
    if is_table and options.push:
        raise StageError("--push uploads the folder of a model: give a folder as --output")
    if is_table and options.interpolate is not None:
        raise StageError("--interpolate is of the weights of a model: give a folder as --output")
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing and not is_table:
        raise StageError(f"exporting needs {', '.join(missing)}: pip install 'vse-pipeline[export]'")
    if options.private and not options.push:
        raise StageError("--private has an effect with --push alone")
    if options.output.exists():
        raise StageError(f"{options.output} is there already: name a new one, or remove it")

"""Turn a checkpoint that the authors of VSE-infinity, MV-VSE or VSE+2AD released into a model of this library.

    python -m vse_core.models.import_checkpoint f30k_butd_region_bert/model_best.pth --out models/vse_infty

writes `models/vse_infty/model.json` and `model.safetensors`, for `vse_core.models.load_model`. To use it in the
pipeline, put next to them what turns captions into tokens: the released vocabulary as `vocabulary.json`, or BERT's
tokenizer by `SubwordTokenizer.from_pretrained(WEIGHTS).save(Path("models/vse_infty/tokenizer.json"))` of
`preprocessing.captions.subwords`. Nothing in the file is executed, and every tensor must be one that the released code
knows.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from vse_core.models import build_model
from vse_core.models.released import CheckpointError, ConvertedCheckpoint, convert, read_released
from vse_core.tensor_files import TensorFileError


def import_checkpoint(
    file: Path, directory: Path, image_size: int | None = None, pixels: str | None = None
) -> ConvertedCheckpoint:
    """Read a released checkpoint and save it as a model of this library; arguments and errors are `convert`'s."""
    converted = convert(read_released(file), image_size, pixels)
    try:
        model = build_model(**converted.specification)
        model.load_state_dict(converted.state, strict=True)
    except (RuntimeError, ValueError) as error:  # sizes that no encoder has; names missing, shapes that do not fit
        raise CheckpointError(f"{file} does not fit the architecture that it seems to have: {error}") from error
    directory.mkdir(parents=True, exist_ok=True)
    model.save(directory)
    return converted


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status, with one message on stderr for what is wrong with the file."""
    parser = argparse.ArgumentParser(
        prog="python -m vse_core.models.import_checkpoint", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the released checkpoint (.pth)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory of the new model")
    parser.add_argument("--image-size", type=int, metavar="S", help="of a grid model (default: by its options, 512)")
    parser.add_argument("--pixels", choices=("caffe", "imagenet"), help="normalisation of a grid model's pixels")
    options = parser.parse_args(arguments)
    try:
        converted = import_checkpoint(options.file, options.out, options.image_size, options.pixels)
    except (CheckpointError, TensorFileError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    count = sum(tensor.numel() for tensor in converted.state.values())
    sys.stdout.write(f"{options.out}: {len(converted.state)} tensors, {count:,} numbers\n")
    if converted.unused:
        sys.stdout.write(f"left out, as the released code never uses them: {len(converted.unused)} tensors\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

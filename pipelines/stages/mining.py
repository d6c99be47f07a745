"""The mine command: captions of other images that a model takes for an image's own, as hard negatives for training."""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pipelines.config import load_config
from pipelines.evaluation.evaluator import GALLERY
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.cli import make_parser, number_in, say
from pipelines.stages.model_evaluation import NamedModel, check_named, evaluate_model
from preprocessing.plain_text import csv_cells
from preprocessing.storage.atomic import open_atomic
from vse_core.evaluation.nearest import top_k


def main() -> None:
    """Read the command line, embed the training split with a model, and write a table of hard negatives."""
    parser = make_parser()
    parser.add_argument("--model", required=True, help="the model that mines, as for evaluate.py")
    parser.add_argument("--output", type=Path, required=True, metavar="TABLE", help="a new .csv or .parquet file")
    parser.add_argument("-k", type=number_in(int, 1), default=10, help="captions of an image (default 10)")
    options = parser.parse_args()
    if options.output.suffix not in (".csv", ".parquet"):
        parser.error(f"--output must end in .csv or .parquet, got {options.output}")
    split = load_config(options.config, options.set).dataset.train_split
    config = load_config(options.config, [*options.set, f"dataset.eval_split={split}"])
    if options.dry_run:
        say(f"would mine {options.k} captions for each image of {split} with {check_named(options.model, config)}")
        return
    evaluated = evaluate_model(NamedModel.find(options.model, config))
    table = mined(Gallery.load(evaluated.directory / GALLERY, evaluated.kind), options.k)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with open_atomic(options.output) as file:
        if options.output.suffix == ".csv":
            pyarrow.csv.write_csv(csv_cells(table), file)
        else:
            pyarrow.parquet.write_table(table, file)
    say(f"{options.output}: {table.num_rows:,} captions; train with preset hard_negatives, loss.table {options.output}")


def mined(gallery: Gallery, k: int) -> pa.Table:
    """Return the k captions of other images that are nearest to each image, but those that are worded as its own."""
    most = max(len(record.captions) for record in gallery.records)
    texts = [caption.text for _, caption in gallery.captions]
    # As many more as may be the image's own, and as may be worded as they are.
    similarities, places = top_k(gallery.images_BKD, gallery.texts_CD.unsqueeze(1), 2 * (k + most))
    rows = []
    for record, values, found in zip(gallery.records, similarities.tolist(), places.tolist(), strict=True):
        own = {caption.text for caption in record.captions}
        wrong = {texts[place]: value for place, value in zip(found, values, strict=True) if texts[place] not in own}
        rows += [(record.image_id, text, value) for text, value in list(wrong.items())[:k]]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    return pa.table(dict(zip(("image_id", "negative", "similarity"), columns, strict=True)))

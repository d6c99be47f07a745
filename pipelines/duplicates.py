"""Report images that look alike in different splits of a configuration's data set.

python pipelines/duplicates.py --config pipelines/config/data/flickr8k.yaml --output duplicates.json
"""

from pathlib import Path

import _repository  # noqa: F401

from pipelines.config import load_config
from pipelines.runtime.cli import config_parser, number_in, run_command, say
from preprocessing.datasets import build_dataset
from preprocessing.features.near_duplicates import DEFAULT_DISTANCE, duplicates_across
from preprocessing.storage.atomic import write_json_atomic


def main() -> None:
    """Read the command line, and print and write the pairs of images that look alike."""
    parser = config_parser()
    bits = number_in(int, 0, 63)
    parser.add_argument(
        "--distance", type=bits, default=DEFAULT_DISTANCE, help="bits of 64 that may differ (default 6)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write all pairs to this JSON file")
    options = parser.parse_args()
    config = load_config(options.config, options.set)
    dataset = build_dataset(config.dataset.format, **config.dataset.options())
    found, unreadable = duplicates_across(dataset, dataset.splits, options.distance)
    found.sort(key=lambda pair: pair.distance)
    for pair in found:
        first, second = pair.first, pair.second
        say(f"{pair.distance} bits: {first.image_id} {second.image_id} ({first.split} {second.split})")
    say(f"{len(found)} near-duplicates across {', '.join(dataset.splits)}")
    for record, reason in unreadable:
        say(f"not read: {record.image_id}: {reason}")
    if options.output is not None:
        pairs = [
            {
                "images": [pair.first.image_id, pair.second.image_id],
                "splits": [pair.first.split, pair.second.split],
                "distance": pair.distance,
            }
            for pair in found
        ]
        not_read = [{"image": record.image_id, "reason": reason} for record, reason in unreadable]
        write_json_atomic(options.output, {"pairs": pairs, "not_read": not_read})


if __name__ == "__main__":
    run_command(main)

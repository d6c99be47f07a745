"""Report images that look alike in different splits of a configuration's data set.

python pipelines/duplicates.py --config pipelines/config/data/flickr8k.yaml --output duplicates.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pipelines.config import ConfigError, load_config
from preprocessing.datasets import DatasetError, build_dataset
from preprocessing.features.near_duplicates import DEFAULT_DISTANCE, duplicates_across
from preprocessing.storage import StorageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 0 with duplicates or without, 1 where the data cannot be read."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file that names the data set")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key (repeatable)")
    parser.add_argument("--distance", type=int, default=DEFAULT_DISTANCE, help="bits of 64 that may differ (default 6)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="also write all pairs to this JSON file")
    options = parser.parse_args(arguments)
    try:
        config = load_config(options.config, options.set)
        dataset = build_dataset(config.dataset.format, **config.dataset.options())
        found, unreadable = duplicates_across(dataset, dataset.splits, options.distance)
    except (ConfigError, DatasetError, StorageError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    found.sort(key=lambda pair: pair.distance)
    for pair in found:
        first, second = pair.first, pair.second
        sys.stdout.write(f"{pair.distance} bits: {first.image_id} {second.image_id} ({first.split} {second.split})\n")
    sys.stdout.write(f"{len(found)} near-duplicates across {', '.join(dataset.splits)}\n")
    sys.stdout.writelines(f"not read: {record.image_id}: {reason}\n" for record, reason in unreadable)
    if options.output is not None:
        pairs = [
            {
                "images": [pair.first.image_id, pair.second.image_id],
                "splits": [pair.first.split, pair.second.split],
                "distance": pair.distance,
            }
            for pair in found
        ]
        aside = [{"image": record.image_id, "reason": reason} for record, reason in unreadable]
        options.output.write_text(json.dumps({"pairs": pairs, "not_read": aside}, indent=1) + "\n", encoding="utf-8")
    return 0

"""Look through published features before they are used: what is there, and what cannot be used.

python -m preprocessing.features.importers trainval_36.tsv --form butd_tsv
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError
from preprocessing.features.importers import FORMS, by_image_key, entries, open_source
from preprocessing.plain_text import printable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 1 where the source cannot be read, or an image of it cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m preprocessing.features.importers", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("source", help="file, or folder of files, as published")
    parser.add_argument("--form", required=True, choices=tuple(FORMS))
    options = parser.parse_args(arguments)
    images: Counter[str] = Counter()
    counts: Counter[int] = Counter()
    kinds: Counter[str] = Counter()
    skipped: list[str] = []
    try:
        for image_id, found in entries(open_source(options.source, options.form)):
            images[image_id] += 1
            if isinstance(found, ImageError):
                skipped.append(f"{image_id}: {found}")
                continue
            features, companions = found.regions.features, found.regions.companions
            counts[len(features)] += 1
            boxes = "with boxes" if "boxes" in companions else "without boxes"
            kinds[f"{features.shape[1]} wide, {boxes}{', with labels' if companions.keys() - {'boxes'} else ''}"] += 1
        by_image_key(((image_id, None) for image_id in images), options.source)
    except ExtractorError as error:
        sys.stderr.write(printable(f"error: {error}\n"))
        return 1
    lines = [f"{counts.total():,} images can be used, {len(skipped):,} cannot"]
    if counts:
        lines.append(f"regions an image: {min(counts)} to {max(counts)}")
    lines += [f"{count:,} images: features {kind}" for kind, count in kinds.most_common()]
    lines += [f"twice there, the last one counts: {name}" for name, count in images.items() if count > 1]
    sys.stdout.write(printable("\n".join([*lines, *skipped]) + "\n"))
    return 1 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())

"""The data of a run: images and captions by split, and what was set aside."""

from __future__ import annotations

from collections import Counter

from pipelines.reporting.page import Section, details, joined, missing, paragraph, table
from pipelines.reporting.run import Run

# Of what was set aside, as many are named.
_NAMED = 100


def data(run: Run) -> Section:
    """Images, captions, shards and what was set aside, by split."""
    splits = run.splits()
    if not splits:
        return Section("Data", missing("no split has been extracted"))
    rows = []
    for name, manifest in splits.items():
        counts = manifest["counts"]
        numbers = (counts[key] for key in ("records", "images", "captions", "shards"))
        rows.append((name, *(f"{number:,}" for number in numbers), f"{counts['bytes'] / 1e6:,.1f}"))
    headers = ("split", "images in the data set", "images extracted", "captions", "shards", "size (MB)")
    parts = [table(headers, rows)]
    vocabulary = run.manifest("train").get("vocabulary_size")
    if vocabulary is not None:
        parts.append(paragraph(f"The vocabulary has {vocabulary:,} entries."))
    set_aside = [
        (name, item.get("image_id", ""), item.get("reason", ""))
        for name, manifest in splits.items()
        for item in manifest["set_aside"]
    ]
    if not set_aside:
        return Section("Data", joined(*parts, paragraph("Nothing was set aside.")))
    reasons = Counter((split, reason) for split, _, reason in set_aside).most_common()
    counted = [(split, reason, f"{count:,}") for (split, reason), count in reasons]
    title = f"The images that were set aside ({min(len(set_aside), _NAMED):,} of {len(set_aside):,})"
    named = details(title, table(("split", "image", "reason"), set_aside[:_NAMED]))
    return Section("Data", joined(*parts, table(("split", "set aside because", "images"), counted), named))

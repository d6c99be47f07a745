"""The data of a run: images and captions by split, and what was skipped."""

from collections import Counter
from typing import Any

from pipelines.reporting.run import Run, read_manifest

_LISTED = 100  # skipped images and captions


def data(run: Run) -> dict[str, Any]:
    """Return the values of `report/data.html`: images and captions by split, and what was skipped."""
    extracted = {name: read_manifest(directory) for name, directory in run.plans["extract"].outputs.items()}
    manifests = {name: manifest for name, manifest in extracted.items() if manifest}
    splits = []
    for name, manifest in manifests.items():
        counts = manifest["counts"]
        numbers = (counts[key] for key in ("records", "images", "captions", "shards"))
        splits.append((name, *(f"{number:,}" for number in numbers), f"{counts['bytes'] / 1e6:,.1f}"))
    skipped = [
        (name, item.get("image_id", ""), item.get("caption_id", ""), item.get("reason", ""))
        for name, manifest in manifests.items()
        for item in manifest["skipped"]
    ]
    reasons = Counter((split, "captions" if caption else "images", reason) for split, _, caption, reason in skipped)
    return {
        "splits": splits,
        "vocabulary": run.manifest("train").get("vocabulary_size"),
        "truncated": run.manifest("train").get("captions_truncated", 0),
        "reasons": [(*row, f"{count:,}") for row, count in reasons.most_common()],
        "skipped": skipped[:_LISTED],
        "total": len(skipped),
    }

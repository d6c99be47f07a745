"""What makes 6,000 photographs enough: candidates alone on the published loss and on the sigmoid loss, and together.

Run: python tests/benchmarks/regularisers.py --directory FOLDER
Rows, resumption and figures are those of leaderboard.py; every row is VSE-infinity of flickr8k.yaml with one thing
changed, or with the changes that its name lists.
"""

from __future__ import annotations

from leaderboard import SIGMOID, Board, Row, main

CANDIDATES: dict[str, tuple[str, ...]] = {
    "feature dropout 0.3": ("training.feature_dropout=0.3",),
    "feature dropout 0.5": ("training.feature_dropout=0.5",),
    "moving average 0.999": ("training.ema_decay=0.999",),
    "MLP head": ("model.image.mlp=true",),
    "no caption augmentation": ("training.caption_augmentation=false",),
    "batches of 512": ("training.batch_size=512", "training.learning_rate=0.002", "training.warmup=15 steps"),
    "twice the epochs at half the rate": ("training.epochs=14", "training.learning_rate=0.0005"),
    "weight decay 0.01": ("training.weight_decay=0.01",),
}
OTHER_LOSSES: dict[str, tuple[str, ...]] = {
    "learned sigmoid loss": (SIGMOID,),
    "learned InfoNCE": ("loss={name: infonce, learned: true, temperature: 0.07, mask_same_image: true}",),
    "loss of VSE+2AD": ("loss={name: adopt, temperature: 0.05, margin: 0.2, mask_same_image: true}",),
}
BASES = ("published loss", "learned sigmoid loss")
ROWS: dict[str, Row] = {
    "published loss": Row("flickr8k"),
    **{f"published loss, {name}": Row("flickr8k", changed) for name, changed in CANDIDATES.items()},
    **{name: Row("flickr8k", changed) for name, changed in OTHER_LOSSES.items()},
    **{f"learned sigmoid loss, {name}": Row("flickr8k", (SIGMOID, *changed)) for name, changed in CANDIDATES.items()},
}


if __name__ == "__main__":
    main(Board("regularisers", ROWS, BASES))

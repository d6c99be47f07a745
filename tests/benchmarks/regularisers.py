"""What makes 6,000 photographs enough: candidates alone on the published loss and on the sigmoid loss, and together.

Run: python tests/benchmarks/regularisers.py --directory FOLDER
Rows, resumption and figures are those of leaderboard.py; every row is VSE-infinity of flickr8k.yaml with one thing
changed, or with the changes that its name lists.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
from leaderboard import DROPOUT, INFONCE, ROOT, SIGMOID, Board, Row, main
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer

from preprocessing.captions.vocabulary import tokenize

WORD_DIM, WORD_DEVIATION = 300, 0.06
WORD_VECTORS = Path(tempfile.gettempdir()) / "word_vectors_of_flickr8k.txt"

CANDIDATES: dict[str, tuple[str, ...]] = {
    "feature dropout 0.3": ("training.feature_dropout=0.3",),
    "feature dropout 0.5": ("training.feature_dropout=0.5",),
    "dropout of word vectors 0.2": ("model.text.dropout=0.2",),
    "dropout of projected cells 0.2": ("model.image.dropout=0.2",),
    "word vectors of the captions": (f"model.text.word_vectors={WORD_VECTORS}",),
    "moving average 0.99": ("training.ema_decay=0.99",),
    "moving average 0.999": ("training.ema_decay=0.999",),
    "MLP head": ("model.image.mlp=true",),
    "no caption augmentation": ("training.caption_augmentation=false",),
    "no cells left out": ("training.size_augmentation=none",),
    "batches of 512": ("training.batch_size=512", "training.learning_rate=0.002", "training.warmup=15 steps"),
    "twice the epochs at half the rate": ("training.epochs=14", "training.learning_rate=0.0005"),
    "weight decay 0.01": ("training.weight_decay=0.01",),
    "weight decay 1": ("training.weight_decay=1",),
}
OTHER_LOSSES: dict[str, tuple[str, ...]] = {
    "learned sigmoid loss": (SIGMOID,),
    "learned InfoNCE": (INFONCE,),
    "loss of VSE+2AD": ("loss={name: adopt, temperature: 0.05, margin: 0.2, mask_same_image: true}",),
}
PRESET = "learned sigmoid loss, feature dropout 0.3"
BASES = ("published loss", "learned sigmoid loss", PRESET)
ROWS: dict[str, Row] = {
    "published loss": Row("flickr8k"),
    **{f"published loss, {name}": Row("flickr8k", changed) for name, changed in CANDIDATES.items()},
    **{name: Row("flickr8k", changed) for name, changed in OTHER_LOSSES.items()},
    **{f"learned sigmoid loss, {name}": Row("flickr8k", (SIGMOID, *changed)) for name, changed in CANDIDATES.items()},
    **{
        f"{PRESET}, {name}": Row("flickr8k", (SIGMOID, DROPOUT, *changed))
        for name, changed in CANDIDATES.items()
        if not name.startswith("feature dropout")
    },
}


def write_word_vectors() -> None:
    """Write a vector for each word of the training captions, learned from which words stand in a caption together.

    Positive pointwise mutual information of pairs of words of a caption, by a truncated singular value decomposition
    (Levy and Goldberg, 2014), scaled to the deviation that word vectors otherwise begin with.
    """
    data = Path(os.environ.get("VSE_DATA", ROOT / "../shared/data")) / "flickr8k"
    images = set((data / "Flickr_8k.trainImages.txt").read_text(encoding="utf-8").split())
    lines = (data / "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines()
    captions = [line.partition("\t")[2] for line in lines if line.partition("#")[0] in images]
    counter = CountVectorizer(tokenizer=tokenize, token_pattern=None, lowercase=False, binary=True)
    occurs_CW = counter.fit_transform(captions).astype(np.float64)
    together_WW = (occurs_CW.T @ occurs_CW).tocoo()
    often_W = np.asarray(occurs_CW.sum(axis=0)).ravel()
    ratio = together_WW.data * len(captions) / (often_W[together_WW.row] * often_W[together_WW.col])
    together_WW.data = np.maximum(np.log(ratio), 0)
    vectors_WE = TruncatedSVD(WORD_DIM, random_state=0).fit_transform(together_WW.tocsr())
    vectors_WE /= vectors_WE.std() / WORD_DEVIATION
    rows = zip(counter.get_feature_names_out(), vectors_WE, strict=True)
    text = "\n".join(f"{word} {' '.join(f'{value:.5f}' for value in vector)}" for word, vector in rows)
    WORD_VECTORS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_word_vectors()
    main(Board("regularisers", ROWS, BASES))

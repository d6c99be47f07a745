"""The protocols of the papers by name: what a data set must look like for a figure to be comparable with theirs."""

from collections.abc import Sequence
from dataclasses import dataclass

# The metrics that every paper prints: recalls at 1, 5 and 10, image to text and text to image.
RECALLS = ("i2t_r01", "i2t_r05", "i2t_r10", "t2i_r01", "t2i_r05", "t2i_r10")


@dataclass(frozen=True)
class PublishedProtocol:
    """Retrieval on a published split; over folds, contiguous galleries of one size, metrics are averaged.

    Its gallery has one of the `sizes`, and `captions` of each item; None takes any number.
    """

    title: str
    sizes: tuple[int, ...]
    captions: int | None = None
    folds: int = 1
    items: str = "images"

    def misfit(self, captions: Sequence[int]) -> str | None:
        """Return why items with these numbers of captions are not the protocol's gallery; None if they are."""
        if len(captions) not in self.sizes:
            numbers = " or ".join(f"{number:,}" for number in self.sizes)
            return f"{self.title} is retrieval among {numbers} {self.items}, here are {len(captions):,}"
        for image, count in enumerate(captions):
            if self.captions not in (None, count):
                wanted = f"{self.title} takes {self.captions} captions of each image"
                return f"{wanted}, but image {image} (counted from 0) has {count}"
        return None


# COCO 5K is Karpathy's complete test split: "testall" in the files that SCAN released; "test" is its first fifth.
RETRIEVAL_PROTOCOLS = {
    "flickr8k_1k": PublishedProtocol("Flickr8k 1K", (1000,), 5),
    "flickr30k_1k": PublishedProtocol("Flickr30K 1K", (1000,), 5),
    "coco_1k": PublishedProtocol("COCO 5-fold 1K", (5000,), 5, folds=5),
    "coco_5k": PublishedProtocol("COCO 5K", (5000,), 5),
}
# The test and the validation split of MSR-VTT, and the test split of VATEX in HGR's code, which VSE-infinity follows.
VIDEO_PROTOCOLS = {
    "msr_vtt": PublishedProtocol("MSR-VTT", (2990, 497), items="videos"),
    "vatex": PublishedProtocol("VATEX", (1500,), items="videos"),
}

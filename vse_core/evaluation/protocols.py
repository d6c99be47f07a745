"""The protocols of the papers by name: what a data set must look like for a figure to be comparable with theirs."""

from collections.abc import Sequence
from dataclasses import dataclass

# The metrics that every paper prints: recalls at 1, 5 and 10, image to text and text to image.
RECALLS = ("i2t_r01", "i2t_r05", "i2t_r10", "t2i_r01", "t2i_r05", "t2i_r10")


@dataclass(frozen=True)
class RetrievalProtocol:
    """Image-text retrieval on a published split; over folds, contiguous galleries of one size, metrics are averaged."""

    title: str
    images: int
    captions_per_image: int
    folds: int = 1

    def misfit(self, captions_per_image: Sequence[int]) -> str | None:
        """Why these images do not make the protocol's gallery; None where they do."""
        images, wanted = len(captions_per_image), self.captions_per_image
        if images != self.images:
            return f"{self.title} is retrieval among {self.images:,} images, here are {images:,}"
        other = next((image for image, count in enumerate(captions_per_image) if count != wanted), None)
        if other is not None:
            return (
                f"{self.title} takes {wanted} captions of each image, but image {other} (counted from 0) has "
                f"{captions_per_image[other]}"
            )
        return None


@dataclass(frozen=True)
class VideoProtocol:
    """Video-text retrieval on the published test and validation splits (HGR's code, which VSE-infinity follows)."""

    title: str
    videos: tuple[int, ...]

    def misfit(self, captions_per_video: Sequence[int]) -> str | None:
        """Why these videos do not make the protocol's gallery; None where they do."""
        if len(captions_per_video) in self.videos:
            return None
        numbers = " or ".join(f"{number:,}" for number in self.videos)
        return f"{self.title} is retrieval among {numbers} videos, here are {len(captions_per_video):,}"


# COCO 5K is Karpathy's test split whole ("testall" in the files that SCAN released, where "test" is its first fifth).
RETRIEVAL_PROTOCOLS = {
    "flickr8k_1k": RetrievalProtocol("Flickr8k 1K", 1000, 5),
    "flickr30k_1k": RetrievalProtocol("Flickr30K 1K", 1000, 5),
    "coco_1k": RetrievalProtocol("COCO 5-fold 1K", 5000, 5, folds=5),
    "coco_5k": RetrievalProtocol("COCO 5K", 5000, 5),
}
VIDEO_PROTOCOLS = {"msr_vtt": VideoProtocol("MSR-VTT", (2990, 497)), "vatex": VideoProtocol("VATEX", (1500,))}

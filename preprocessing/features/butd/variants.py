"""The two published ways to run the same network, which give slightly different boxes."""

import math
from dataclasses import dataclass
from typing import Literal

VariantName = Literal["caffe", "detectron2"]


@dataclass(frozen=True, slots=True)
class Variant:
    """Differences between the original Caffe code and its port to detectron2.

    Attributes:
        name: "caffe" or "detectron2".
        edge: 1 where a box includes the pixels of its far edges and its width is x2 - x1 + 1; 0 where it is x2 - x1.
        largest_log_growth: limit on the predicted logarithm of a box's growth in width or height.
        smallest_side: in pixels of the original image; proposals with a shorter side are dropped.
        drops_first: whether small proposals are dropped before the best of the rest are taken, or after.
    """

    name: VariantName
    edge: float
    largest_log_growth: float
    smallest_side: float
    drops_first: bool


VARIANTS: dict[str, Variant] = {
    # The code that made the released features: features of VSE-infinity, SCAN and most others.
    "caffe": Variant("caffe", 1.0, math.inf, 16.0, True),
    # The port by an author of LXMERT, which resizes 8-bit images; its copy at Hugging Face, for LXMERT, resizes floats.
    # A box grows from 16 to 1000 pixels at most.
    "detectron2": Variant("detectron2", 0.0, math.log(1000 / 16), 0.0, False),
}

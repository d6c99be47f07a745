"""Settings of the aggregators, one class for each set of options."""

import inspect
from typing import Annotated, Literal

from pydantic import Field

from pipelines.schema.fields import Float, Size, Strict, Temperature
from pipelines.schema.variants import Variants
from vse_core.registry import added

OF_EACH_DIMENSION = ("mean", "max", "kmax", "cls", "last", "gpo", "gpo_transformer", "gem", "softpool")
"""The package's aggregators that treat every dimension by itself, and all of them alike."""


def is_of_each_dimension(name: str) -> bool:
    """Return whether an aggregator treats every dimension by itself; a plugin's does if it is not told the width."""
    build = added("pooling").get(name)
    return name in OF_EACH_DIMENSION if build is None else "dim" not in inspect.signature(build).parameters


class PlainPooling(Strict):
    """An aggregator without options; see `vse_core.pooling` for what each one does and where it comes from."""

    name: Literal["mean", "max", "cls", "last", "softpool", "adapool", "lip", "attention", "seq2seq", "selfattn"]


class KMaxPooling(Strict):
    """Mean of the k largest values of every dimension (VSE-infinity, section 3.2)."""

    name: Literal["kmax"]
    k: Size = Field(5, description="values that are averaged (best in VSE-infinity: 20 on grids, 1 on regions)")


class GpoPooling(Strict):
    """Generalized Pooling Operator (VSE-infinity, section 3.2): learned weights over the sorted values.

    Its ablations have another generator of the weights (supplementary material, tables 3, 7 and 8): a Transformer, one
    that gives every dimension its own weights, one that reads the features.
    """

    name: Literal["gpo", "gpo_transformer", "gpo_dimensions", "gpo_features"]
    position_dim: Size = Field(32, multiple_of=2, description="width of the rank's sine-cosine code")
    hidden_dim: Size = Field(32, description="width of what turns rank codes into weights")
    temperature: Temperature = Field(0.1, description="temperature of the softmax over ranks (released code)")


class AdPooling(Strict):
    """ADPOOL (VSE+2AD, section 3.2): pooling over ranks and within dimensions, balanced by the result."""

    name: Literal["adpool"]
    variant: Literal["corrected", "release", "paper"] = Field(
        "corrected", description="the paper's formulas, the released code, or that code with padding masked"
    )
    token_share: Literal["learned", "random"] | Annotated[Float, Field(ge=0, le=1)] = Field(
        "learned",
        description="weight of the token level, the rest is the embedding level's (table 3; random: appendix)",
    )


class GemPooling(Strict):
    """Generalized mean with a trainable power."""

    name: Literal["gem"]
    power: Float = Field(
        3.0, ge=0.01, le=100, description="initial power: 1 is the mean, large ones approach the maximum"
    )


class FSPooling(Strict):
    """Learned piecewise linear weights over the ranks of every dimension."""

    name: Literal["fspool"]
    pieces: Size = Field(20, description="pieces of the function of the rank")


class GraphPooling(Strict):
    """Graph convolution over all pairs of elements, then a readout."""

    name: Literal["gcn"]
    readout: Literal["mean", "seq2seq"] = Field("mean", description="how the nodes become one vector")


PoolingConfig = Annotated[
    PlainPooling | KMaxPooling | GpoPooling | AdPooling | GemPooling | FSPooling | GraphPooling,
    Variants("name", "pooling"),
]

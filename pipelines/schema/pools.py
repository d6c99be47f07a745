"""Settings of the pools of words: which words of training captions replace others in negatives and attacks."""

from typing import Literal

from pydantic import Field

from pipelines.schema.fields import Int, Strict


class PoolsConfig(Strict):
    """Words of the training captions that take other words' places: in UniVSE's negatives, in adversarial captions."""

    min_nouns: Int = Field(10, gt=0, description="fewest uses of a noun (UniVSE: 100 in COCO's 414,000 captions)")
    min_adjectives: Int = Field(10, gt=0, description="fewest uses of an adjective; without effect on the paper's")
    min_relations: Int = Field(5, gt=0, description="fewest uses of a relation (UniVSE: 1)")
    adjectives: Literal["captions", "paper"] = Field(
        "captions", description="those of the captions, or the 37 of UniVSE's appendix"
    )

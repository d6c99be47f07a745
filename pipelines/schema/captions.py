"""Settings of the work on captions: the parser, and which words of training captions replace others."""

from typing import Literal

from pydantic import Field

from pipelines.schema.fields import Cpus, FolderOrHubName, Int, Strict


class ParsingConfig(Strict):
    """Parsing of captions into objects, attributes and relations (UniVSE, VSE-C)."""

    pipeline: FolderOrHubName | None = Field(
        None, description="spaCy pipeline of Universal Dependencies, installed or a folder; none: the one that ships"
    )
    batch_size: Int = Field(256, gt=0, description="captions that the pipeline works on at once")
    actors: Int = Field(1, gt=0, description="parsing processes; each loads the pipeline once")
    cpus_per_actor: Cpus = Field(1, description="CPU cores reserved for an actor, which uses one thread")


class PoolsConfig(Strict):
    """Words of the training captions that take other words' places: in UniVSE's negatives, in adversarial captions."""

    min_nouns: Int = Field(10, gt=0, description="fewest uses of a noun (UniVSE: 100 in COCO's 414,000 captions)")
    min_adjectives: Int = Field(10, gt=0, description="fewest uses of an adjective; without effect on the paper's")
    min_relations: Int = Field(5, gt=0, description="fewest uses of a relation (UniVSE: 1)")
    adjectives: Literal["captions", "paper"] = Field(
        "captions", description="the captions', or the 37 of UniVSE's appendix"
    )

"""Settings of the caption parser."""

from typing import Annotated

from pydantic import AfterValidator, Field

from pipelines.schema.fields import Float, Int, Strict, folder_or_hub_name


class ParsingConfig(Strict):
    """Parsing of captions into objects, attributes and relations (UniVSE, VSE-C)."""

    pipeline: Annotated[str, AfterValidator(folder_or_hub_name)] | None = Field(
        None, description="installed spaCy pipeline (en_core_web_sm) or its folder; by default the one that ships"
    )
    batch_size: Int = Field(256, gt=0, description="captions that the pipeline works on at once")
    actors: Int = Field(1, gt=0, description="parsing processes; each loads the pipeline once")
    cpus_per_actor: Float = Field(1, gt=0, description="CPU cores reserved for an actor, which uses one thread")

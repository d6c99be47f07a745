"""The stages of the pipeline, in their order."""

from dataclasses import replace

from pipelines import plugins
from pipelines.schema.error import ConfigError
from pipelines.stages.evaluate.plan import EVALUATE
from pipelines.stages.extract.plan import EXTRACT
from pipelines.stages.index.plan import INDEX
from pipelines.stages.parse.plan import PARSE
from pipelines.stages.register.plan import REGISTER
from pipelines.stages.stage import Stage
from pipelines.stages.train.plan import TRAIN

STAGES: dict[str, Stage] = {stage.name: stage for stage in (EXTRACT, PARSE, TRAIN, EVALUATE, INDEX, REGISTER)}


def known_stages() -> dict[str, Stage]:
    """Return the stages by name, those of plugins at the end: these get the plans of all others.

    A plugin's stage has no script of its own: it runs as a part of the complete pipeline, if the configuration has
    settings for it in `stages`. Raises ConfigError if its name is taken.
    """
    for stage in plugins.STAGES:
        if stage.name in STAGES:
            raise ConfigError(f"plugins: a stage named {stage.name!r} is there already; known: {', '.join(STAGES)}")
    return STAGES | {stage.name: replace(stage, is_added=True) for stage in plugins.STAGES}

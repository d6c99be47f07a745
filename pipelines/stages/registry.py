"""The stages of the pipeline, in their order."""

from dataclasses import replace

from pipelines.stages.evaluate.plan import EVALUATE
from pipelines.stages.extract.plan import EXTRACT
from pipelines.stages.index.plan import INDEX
from pipelines.stages.parse.plan import PARSE
from pipelines.stages.register.plan import REGISTER
from pipelines.stages.stage import Stage
from pipelines.stages.train.plan import TRAIN

STAGES: dict[str, Stage] = {stage.name: stage for stage in (EXTRACT, PARSE, TRAIN, EVALUATE, INDEX, REGISTER)}


def add(stage: Stage) -> None:
    """Add a stage at the end of the pipeline; it gets the plans of all others. Raises ValueError if the name is taken.

    The stage has no script of its own: it runs as a part of the complete pipeline, if the configuration has settings
    for it in `stages`.
    """
    if stage.name in STAGES:
        raise ValueError(f"a stage named {stage.name!r} is there already; known: {', '.join(STAGES)}")
    STAGES[stage.name] = replace(stage, is_added=True)

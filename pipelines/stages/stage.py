"""A stage of the pipeline: its description of itself, and where its work is."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pipelines.config import PipelineConfig
from pipelines.runtime.stage import Plans, StagePlan, StageReport
from pipelines.stages.on_worker import on_worker
from pipelines.tracking import Tracker


@dataclass(frozen=True)
class Stage:
    """A stage: its name, its plan, and the name of the module whose `run` does the work.

    `plan` finds the work to do: cheap, without side effects, and callable before the earlier stages have run. It gets
    the plans of these. Its module imports nothing heavy (no torch, ray, mlflow or transformers), as planning an
    unchanged pipeline takes only seconds; that of the work is imported when there is work to do.

    `needs` is what the model must have ("embeddings" to search) or what something must read ("graphs" of the captions)
    for the stage to be of use; `is_reported` says whether a run of it leaves a report behind. `check_cluster` refuses a
    cluster that the stage will not fit into, before the stages in front of it have worked for hours. `log_headlines`
    logs what the pipeline's own run shows of the stage. `reads_model`: the work is done where a training's worker
    would run. `is_added`: a plugin's, of use to those who ask for it.
    """

    name: str
    plan: Callable[[PipelineConfig, Plans], StagePlan]
    work: str
    needs: Literal["embeddings", "graphs"] | None = None
    is_reported: bool = False
    check_cluster: Callable[[PipelineConfig], None] | None = None
    log_headlines: Callable[[PipelineConfig, StagePlan, Tracker], None] | None = None
    reads_model: bool = False
    is_added: bool = False

    def is_useful(self, config: PipelineConfig) -> bool:
        """Return whether the configuration has what the stage needs."""
        if self.is_added and all(settings.name != self.name for settings in config.stages):
            return False
        if self.needs == "graphs":
            return config.reads_graphs
        return self.needs is None or config.kind.has_embeddings

    def run(self, config: PipelineConfig, upstream: Plans, tracker: Tracker) -> StageReport:
        """Do what is missing and log it to `tracker`, the stage's own run; called if the plan is not complete."""
        work: Callable[[PipelineConfig, Plans, Tracker], StageReport] = importlib.import_module(self.work).run
        if self.reads_model:
            return on_worker(config, work, config, upstream, tracker=tracker)
        return work(config, upstream, tracker)

"""Runs in MLflow: one parent for a pipeline, one child for each stage, and a tracker that outlives an outage.

What a tracker cannot deliver it keeps in a spool folder, says so, and delivers later; the work that is being tracked
never fails because of it. MLflow itself is imported only when a run is opened: that takes seconds.
"""

from pipelines.tracking.client import TrackingError
from pipelines.tracking.records import LoggedData, RunHandle
from pipelines.tracking.runs import PipelineRuns, code_version, recorded_run_url
from pipelines.tracking.tracker import Tracker

__all__ = ["LoggedData", "PipelineRuns", "RunHandle", "Tracker", "TrackingError", "code_version", "recorded_run_url"]

"""The trials of a search on Ray Tune: each is a training of the pipeline, and reports every epoch."""

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import ray
import torch
from ray import tune
from ray.tune import ResultGrid, Tuner
from ray.tune.integration.ray_train import TuneReportCallback
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.basic_variant import BasicVariantGenerator

from pipelines.config import PipelineConfig
from pipelines.config.training import TrainingConfig
from pipelines.inference.embedder import default_device
from pipelines.runtime.errors import has_message, is_disk_error, resource_message
from pipelines.runtime.lock import exclusive, when_free
from pipelines.runtime.outputs import record_outputs
from pipelines.runtime.stage import NoRoomError, StageError, used_folders
from pipelines.stages.runner import plan_stages
from pipelines.stages.train.plan import NAME as TRAIN
from pipelines.stages.train.plan import finished_epochs
from pipelines.stages.train.run import run as train
from pipelines.tracking import PipelineRuns
from pipelines.tracking.client import outages
from pipelines.tracking.runs import end_children
from pipelines.training.capacity import room_for
from pipelines.training.launch import Fit, fit
from pipelines.training.run_folder import RunFolder
from pipelines.training.worker import TrainingJob, train_as_process
from pipelines.tuning.results import Trial, value_text
from pipelines.tuning.space import Domain, SearchConfig, with_settings
from vse_core.evaluation.protocols import RECALLS

log = logging.getLogger(__name__)

METRIC = "rsum"
# The driver of a group of workers waits almost all of the time. A CPU for each, or a hundredth of one, would leave too
# few for the workers of a small cluster; with no resource at all Ray Tune does not start it.
_DRIVER: dict[str, float] = {"memory": 1 << 20}
# Starts after the first, if a trial's process dies; each resumes from the last checkpoint.
_RESTARTS = 3
_SEED = "__seed__"
_NO_ROOM = "no_room"
_TRIALS = "trials"
_RELEASE_SECONDS = 60.0


def run_trials(config: PipelineConfig, search: SearchConfig, directory: Path, search_run: str) -> list[Trial]:
    """Run all trials, or resume those that an earlier start has not finished: Ray Tune's state is in the directory."""
    # Paths are absolute, and imports begin where they began.
    os.environ["RAY_CHDIR_TO_TRIAL_DIR"] = "0"
    # Ctrl-C ends the search, as it ends other commands: Ray would return what there is as if it were all.
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
    # Plain values, since they travel to other machines.
    job = {
        "base": config.model_dump(mode="json"),
        "search": search.model_dump(mode="json", exclude_none=True),
        "search_run": search_run,
    }
    resources = tune.PlacementGroupFactory([_resources(config.training)])
    trainable = tune.with_resources(tune.with_parameters(run_trial, job=job), resources)
    state = directory / _TRIALS
    if tune.Tuner.can_restore(str(state)):
        tuner = tune.Tuner.restore(str(state), trainable, resume_unfinished=True, restart_errored=True)
    else:
        tuner = _tuner(config, search, directory, trainable)
    grid = tuner.fit()
    _wait_for_release()
    _require_room(grid, directory)
    try:
        end_children(config.tracking_uri, search_run)
    except outages() as error:
        log.warning("MLflow does not answer (%s): runs of trials that were stopped early stay RUNNING there", error)
    return _results(grid, search, config)


def _require_room(grid: Iterable[Any], directory: Path) -> None:
    """Raise NoRoomError if trials have failed for want of room: that says nothing of their settings.

    The next start asks all trials again, of which those that are trained answer at once.
    """
    failed = [metrics["problem"] for result in grid if (metrics := result.metrics or {}).get(_NO_ROOM)]
    if failed:
        forget(directory)
        raise NoRoomError(f"tune: {len(failed):,} trials are not finished; the first says: {failed[0]}")


def forget(directory: Path) -> None:
    """Remove the state of a search that `run_trials` keeps; its trainings stay, and are found."""
    shutil.rmtree(directory / _TRIALS)


def _tuner(config: PipelineConfig, search: SearchConfig, directory: Path, trainable: Any) -> Tuner:
    space = {key: _domain(domain, search) for key, domain in search.domains.items()}
    concurrent = search.concurrent or room_for(config.training)
    scheduler = None
    if search.method == "asha":
        epochs = search.most_epochs(config)
        # One epoch more than there are: a trial that gets to the end ends by itself, and its run in MLflow with it.
        bounds = {"max_t": epochs + 1, "grace_period": min(search.grace_epochs, epochs)}
        scheduler = ASHAScheduler(time_attr="epoch", reduction_factor=search.reduction, **bounds)
    space[_SEED] = tune.grid_search([config.seed + number for number in range(search.seeds)])
    # Every seed of a setting has the same values.
    draws = BasicVariantGenerator(max_concurrent=concurrent, constant_grid_search=True, random_state=search.draw_seed)
    return tune.Tuner(
        trainable,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric=METRIC,
            mode="max",
            num_samples=1 if search.is_exhaustive else search.trials,
            search_alg=draws,
            scheduler=scheduler,
            trial_dirname_creator=lambda trial: trial.trial_id,
            reuse_actors=True,  # a new process has to import everything
        ),
        run_config=tune.RunConfig(
            name=_TRIALS,
            storage_path=str(directory),
            failure_config=tune.FailureConfig(max_failures=_RESTARTS),
            verbose=1,
        ),
    )


def _resources(training: TrainingConfig) -> dict[str, float]:
    if training.most_workers > 1:
        return _DRIVER
    wanted = {"CPU": training.cpus_per_worker, "GPU": training.gpus_per_worker}
    return {name: amount for name, amount in wanted.items() if amount}


def _domain(domain: Domain, search: SearchConfig) -> Any:
    if domain.uniform is not None:
        return tune.uniform(*domain.uniform)
    if domain.log_uniform is not None:
        return tune.loguniform(*domain.log_uniform)
    values = list(domain.extremes)
    return tune.grid_search(values) if search.is_exhaustive else tune.choice(values)


def run_trial(drawn: dict[str, Any], job: dict[str, Any]) -> None:
    """Train one setting with one seed, and report every epoch to Ray Tune. It runs in a process of its own.

    A training that fails, as with too high a rate, is a result: RSUM 0, and the reason; `_require_room` tells one that
    has found no room from it. One that another process is at, or was until its machine died, is waited for.
    """
    when_free(partial(_run_trial, drawn, job))


def _run_trial(drawn: dict[str, Any], job: dict[str, Any]) -> None:
    base, search = PipelineConfig.model_validate(job["base"]), SearchConfig.model_validate(job["search"])
    settings = {key: drawn[key] for key in search.domains}
    config = with_settings(base, search.values_of(settings), drawn[_SEED])
    plans = plan_stages(config, last=TRAIN)
    plan = plans[TRAIN]
    name = ", ".join(f"{key.rpartition('.')[2]} {value_text(value)}" for key, value in settings.items())
    with exclusive(config.mirror, plan.directory):
        if not plan.complete:
            # Another machine may have begun it, or this one have checkpoints that the storage lacks.
            folder = RunFolder(plan.directory, config.mirror)
            folder.publish()
            folder.recover()
        for metrics in finished_epochs(plan):
            tune.report(metrics)
        if plan.complete:
            return
        try:
            with (
                PipelineRuns(config.experiment, plan.fingerprint, name, job["search_run"]) as runs,
                runs.parent as tracker,
            ):
                tracker.set_tags({"vse.stage": TRAIN})  # as a pipeline's, by which figures find it
                tracker.log_params({f"search/{key}": value for key, value in settings.items()})
                record_outputs(config.mirror, runs.folder, *used_folders(plans), model=config.registered_model)
                train(config, plans, tracker, *_fits(config.training))
        except StageError as error:
            failed = {"epoch": len(finished_epochs(plan)) + 1, "problem": str(error)}
            tune.report({METRIC: 0.0, **failed, _NO_ROOM: isinstance(error, NoRoomError)})


def _fits(training: TrainingConfig) -> tuple[Fit, Fit]:
    """Return what runs a training, and what runs the one before it on all captions, which reports no epochs."""
    if training.most_workers > 1:
        return partial(fit, callbacks=[TuneReportCallback()]), fit
    return partial(_fit_here, report=tune.report), partial(_fit_here, report=lambda _metrics: None)


def _fit_here(
    job: TrainingJob, _ray_address: str | None, _total_steps: int, report: Callable[[dict[str, float]], None]
) -> dict[str, Any]:
    """Train in the process of the trial: a group of one worker would be five processes more for each."""
    try:
        return train_as_process(job, torch.device(default_device()), report)
    except StageError:
        raise
    except Exception as error:
        if (message := str(error) if has_message(error) else resource_message(error)) is not None:
            raise (NoRoomError if is_disk_error(error) else StageError)(message) from error
        raise


def _results(grid: ResultGrid, search: SearchConfig, config: PipelineConfig) -> list[Trial]:
    trials = []
    for result in grid:
        assert result.config is not None
        settings, seed = {key: result.config[key] for key in search.domains}, result.config[_SEED]
        history, metrics = result.metrics_dataframe, result.metrics or {}
        problem = str(metrics.get("problem", "") or result.error or "")
        is_trained = history is not None and METRIC in history and not problem
        best: dict[str, Any] = history.loc[history[METRIC].idxmax()].to_dict() if is_trained else {}
        rsum = float(best[METRIC]) if best else None
        best_epoch, epochs = int(best.get("epoch", 0)), int(metrics.get("epoch", 0))
        is_early = not problem and epochs < search.values_of(settings).get("training.epochs", config.training.epochs)
        recalls = {name: float(best[name]) for name in RECALLS if name in best}
        name = Path(result.path).name
        trials.append(Trial(name, settings, seed, rsum, best_epoch, epochs, is_early, problem, recalls))
    return sorted(trials, key=lambda trial: trial.trial)


def _wait_for_release() -> None:
    """Wait until the resources of stopped trials are free: the next training would wait for them in vain."""
    end = time.monotonic() + _RELEASE_SECONDS
    while ray.available_resources().get("CPU", 0.0) < ray.cluster_resources().get("CPU", 0.0) - 0.5:
        if time.monotonic() > end:
            log.warning("%s seconds after the search some of its resources are still taken", int(_RELEASE_SECONDS))
            return
        time.sleep(0.5)

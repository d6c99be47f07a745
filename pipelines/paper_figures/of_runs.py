"""Figures of how models came to be: their trainings, searches over settings, and evaluations with attacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PIL import Image

from pipelines.evaluation.evaluator import PICTURES
from pipelines.paper_figures.exhibit import Exhibit
from pipelines.runtime.stage import StageError
from pipelines.stages.model_evaluation import NamedModel, evaluate_model
from pipelines.tuning.plots import plot_grid
from pipelines.tuning.results import read_results
from pipelines.tuning.search import TABLE, search_dir
from vse_core.evaluation.training_plots import plot_convergence, plot_negatives

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pipelines.config import PipelineConfig
    from pipelines.reporting.recorded import Point
    from pipelines.tuning.space import SearchConfig


def kmax_grid(config: PipelineConfig, search: SearchConfig) -> dict[str, Figure]:
    """The RSUM of every combination of two keys of a finished search (VSE-infinity, figure 6).

    Raises:
        StageError: the search has not come to its end, or is not one over two keys.
    """
    stage = search_dir(config, search)
    if not stage.is_complete():
        raise StageError(
            f"the search {search.name!r} has not come to its end under this configuration: run "
            "`python pipelines/tune.py` with the same --search and --config first"
        )
    stage.pull()
    try:
        return {search.name: plot_grid(read_results(stage.path / TABLE), search)}
    except ValueError as error:
        raise StageError(str(error)) from error


def convergence(exhibits: Sequence[Exhibit]) -> dict[str, Figure]:
    """RSUM after each epoch of several models' trainings (VSE+2AD, appendix, figure 1: with ADOPT and without).

    Raises:
        StageError: MLflow does not know a training or its epochs, or they were evaluated on different splits.
    """
    splits = list(dict.fromkeys(exhibit.training.tags.get("vse.split", "") for exhibit in exhibits))
    if len(splits) > 1:
        raise StageError(f"the trainings were evaluated on different splits: {' and '.join(splits)}")
    rsums = {}
    for exhibit in exhibits:
        points = _last_of_each_step(exhibit.training.metrics.get(f"{splits[0]}/rsum", ()))
        if not points:
            raise StageError(f"{exhibit.name}: MLflow has no RSUM of the epochs of its training")
        loss = exhibit.training.params.get("loss.name", "unknown")
        rsums[f"{exhibit.name} (loss {loss})"] = [point.value for point in points]
    return {"convergence": plot_convergence(rsums, splits[0])}


def negatives(exhibits: Sequence[Exhibit]) -> dict[str, Figure]:
    """The number of negatives that ADOPT chooses, over the steps of training (VSE+2AD, appendix, figure 2).

    Raises:
        StageError: MLflow does not know a training, or it has not logged them.
    """
    numbers = {}
    for exhibit in exhibits:
        points = _last_of_each_step(exhibit.training.metrics.get("train/negatives", ()))
        if not points:
            loss = exhibit.training.params.get("loss.name", "unknown")
            raise StageError(
                f"{exhibit.name}: its training has logged no number of negatives, as it does with loss.name adopt; "
                f"this one is {loss}"
            )
        numbers[exhibit.name] = [point.step for point in points], [point.value for point in points]
    return {"negatives": plot_negatives(numbers)}


def alpha_sweep(exhibit: Exhibit) -> dict[str, Image.Image]:
    """Recalls over the share of the sentence in a caption's vector, without and under attack (UniVSE, figure 5).

    It is drawn by the evaluation with the protocol `attack` on the split of the configuration, which is done where it
    has not been: embedding the adversarial captions takes long.

    Raises:
        StageError: the model has no components, or does not fit the features.
    """
    settings = exhibit.config.evaluation.model_copy(update={"protocols": ("retrieval", "attack")})
    config = exhibit.config.model_copy(update={"evaluation": settings})
    evaluated = evaluate_model(NamedModel(exhibit.name, config, exhibit.bundle[1] / "model"))
    path = evaluated.directory / PICTURES / "alpha_sweep.png"
    if not path.is_file():
        raise StageError(f"{exhibit.name} has no alpha: its captions are sentences without components")
    with Image.open(path) as image:
        return {"alpha_sweep": image.convert("RGB")}


def _last_of_each_step(points: Sequence[Point]) -> list[Point]:
    """What counts of steps that were repeated after a restart: the last value, in the order of the steps."""
    last = {point.step: point for point in points}
    return [last[step] for step in sorted(last)]

"""Figures of recorded runs: trainings, and evaluations under attack."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from pipelines.config import PipelineConfig
from pipelines.evaluation import PICTURES
from pipelines.evaluation.named_models import NamedModel, evaluate_model
from pipelines.paper_figures.registered_model import RegisteredModel
from pipelines.runtime.stage import StageError, check_output
from vse_core.evaluation.plots import plot_convergence, plot_negatives


def convergence(models: Sequence[RegisteredModel]) -> dict[str, Figure]:
    """Draw the RSUM after each epoch of several trainings (VSE+2AD, appendix, figure 1: with ADOPT and without)."""
    splits = list(dict.fromkeys(registered.training.data.tags.get("vse.split", "") for registered in models))
    if len(splits) > 1:
        raise StageError(f"the trainings were evaluated on different splits: {' and '.join(splits)}")
    rsums = {}
    for registered in models:
        values = registered.history(f"{splits[0]}/rsum")
        if not values:
            raise StageError(f"{registered.name}: MLflow has no RSUM of the epochs of its training")
        loss = registered.training.data.params.get("loss.name", "unknown")
        rsums[f"{registered.name} (loss {loss})"] = list(values.values())
    return {"convergence.png": plot_convergence(rsums, splits[0])}


def negatives(models: Sequence[RegisteredModel]) -> dict[str, Figure]:
    """Draw the number of negatives that ADOPT chooses, by training step (VSE+2AD, appendix, figure 2)."""
    numbers = {}
    for registered in models:
        values = registered.history("train/negatives")
        if not values:
            loss = registered.training.data.params.get("loss.name", "unknown")
            raise StageError(
                f"{registered.name}: its training has logged no number of negatives, as it does with loss.name adopt; "
                f"this one is {loss}"
            )
        numbers[registered.name] = list(values), list(values.values())
    return {"negatives.png": plot_negatives(numbers)}


def alpha_sweep(registered: RegisteredModel, config: PipelineConfig) -> dict[str, bytes]:
    """Draw recalls over the sentence's share of a caption's vector, by the protocol `attack` (UniVSE, figure 5)."""
    settings = config.evaluation.model_copy(update={"protocols": ("retrieval", "attack")})
    attacked = config.model_copy(update={"evaluation": settings})
    directory = evaluate_model(NamedModel(registered.name, attacked, registered.bundle[1] / "model")).directory
    path = directory / PICTURES / "alpha_sweep.png"
    if not path.is_file():
        raise StageError(f"{registered.name} has no alpha: its captions are sentences without components")
    check_output(directory, f"{PICTURES}/{path.name}")
    return {path.name: path.read_bytes()}

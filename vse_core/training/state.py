"""The state that an exact resume needs besides the model, as safetensors and JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from vse_core.digests import damage_named
from vse_core.training.shares import read_shares, saved_tensors

OPTIMIZER = "optimizer.safetensors"
PROGRESS = "progress.json"


@dataclass(frozen=True)
class Progress:
    """Progress of a run: the epoch, from 0, its steps already done, and the consecutive ones on the collapse plateau.

    The learning rate, the sampler and all randomness are functions of the seed and these numbers. ``history`` has the
    metrics of every finished epoch, ``rsum`` among them; ``learned`` what the loss itself learns, by name; ``scaler``
    the state of fp16's scaling (:class:`~vse_core.training.mixed_precision.MixedPrecision`). ``seconds`` is the time
    that all starts together have spent on it.
    """

    epoch: int = 0
    step: int = 0
    plateau_steps: int = 0
    history: tuple[dict[str, float], ...] = ()
    scaler: dict[str, float] = field(default_factory=dict)
    learned: dict[str, float] = field(default_factory=dict)
    seconds: float = field(default=0.0, compare=False)

    @property
    def best_epoch(self) -> int | None:
        """The finished epoch with the highest RSUM (the first of equals), None before the first evaluation."""
        return max(range(len(self.history)), key=lambda e: self.history[e]["rsum"]) if self.history else None


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return an optimiser's state by ``INDEX.NAME``."""
    return {
        f"{index}.{name}": torch.as_tensor(value)
        for index, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }


def save_state(tensors: Mapping[str, Tensor], progress: Progress, directory: Path) -> None:
    """Write :func:`optimizer_tensors` and the progress into a directory that exists."""
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, directory / OPTIMIZER)
    save_progress(progress, directory)


def save_progress(progress: Progress, directory: Path) -> None:
    """Write the progress into a directory that exists."""
    (directory / PROGRESS).write_text(json.dumps(asdict(progress)) + "\n", encoding="utf-8")


def load_state(optimizer: torch.optim.Optimizer, directory: Path) -> Progress:
    """Restore the optimiser of the same model and read the progress; ValueError if the tensors are of another.

    Processes that share its state read their shares of it, whoever wrote the directory.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    tensors: dict[str, Tensor] = {}
    state: dict[int, dict[str, Tensor]] = {}
    with damage_named(directory):
        saved = {tuple(key.split(".", 1)): of for key, of in saved_tensors(directory).items() if key[0].isdigit()}
        count = max((int(index) + 1 for index, _ in saved), default=0)
    if count > len(parameters):
        raise ValueError(f"{directory} holds {count} parameters, the optimiser {len(parameters)}: not this model's")
    for (index, name), tensor in saved.items():
        like = parameters[int(index)]
        # In the parameter's own layout (channels last, say), over which a fused optimiser walks without asking.
        made = torch.empty_like(like, requires_grad=False) if tensor.size == like.shape else torch.empty(tensor.size)
        tensors[f"{index}.{name}"] = state.setdefault(int(index), {})[name] = made
    with damage_named(directory):
        read_shares(tensors, directory)
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return read_progress(directory)


def read_progress(directory: Path) -> Progress:
    """Read the progress of a saved run."""
    with damage_named(directory / PROGRESS):
        saved = json.loads((directory / PROGRESS).read_text(encoding="utf-8"))
        progress = Progress(**(saved | {"history": tuple(saved["history"])}))
        progress.best_epoch  # noqa: B018 (asks the history for its RSUM)
    return progress

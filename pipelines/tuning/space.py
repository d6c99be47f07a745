"""The configuration of a hyperparameter search: the keys, their values, and the method."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from pipelines.config import ConfigError, PipelineConfig
from pipelines.config.layers import Layer, merged, nested, override_layer, read_layer
from pipelines.config.messages import explain
from pipelines.schema.fields import Float, Int, Strict

# Settings that the shards do not depend on: all trials share one extraction.
_SEARCHABLE = ("model", "loss", "training", "vocabulary")
# The key of a search over rows; its values are their names.
ROW = "row"


class Domain(Strict):
    """The distribution that a value is drawn from: exactly one of these."""

    values: tuple[Any, ...] | None = Field(None, min_length=1, description="one of these, which may be mappings")
    uniform: tuple[Float, Float] | None = Field(None, description="evenly between two numbers")
    log_uniform: tuple[Float, Float] | None = Field(None, description="evenly between the logarithms of two numbers")

    def _misfits(self) -> Iterator[str]:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            yield f"give one of values, uniform and log_uniform, got {' and '.join(given) or 'none'}"
        bounds = self.uniform or self.log_uniform
        if bounds is not None and not bounds[0] < bounds[1]:
            yield f"the lower bound comes first, got {bounds[0]:g} and {bounds[1]:g}"
        if self.log_uniform is not None and self.log_uniform[0] <= 0:
            yield f"logarithms need numbers above 0, got {self.log_uniform[0]:g}"

    @property
    def extremes(self) -> tuple[Any, ...]:
        """The values, or the bounds of the range."""
        return self.values or self.uniform or self.log_uniform or ()

    @property
    def examples(self) -> tuple[Any, ...]:
        """The values, or the bounds of the range and a fraction between them."""
        if self.values is not None:
            return self.values
        low, high = self.extremes
        return (low, low + (high - low) / math.pi, high)


class SearchConfig(Strict):
    """A search around a configuration for the highest RSUM on the evaluation split, that of the best epoch."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$", description="name of the search in MLflow")
    method: Literal["random", "grid", "asha", "rows"] = Field(
        description="random draws; all; draws that end early (ASHA); rows of a table"
    )
    space: dict[str, Domain] = Field({}, description="keys in dots, each with values, uniform or log_uniform")
    rows: dict[str, dict[str, Any]] = Field({}, description="for the method rows: by name, values by keys in dots")
    trials: Int = Field(8, gt=0, le=10_000, description="settings that are drawn; a grid has one for each combination")
    seeds: Int = Field(1, gt=0, le=1000, description="trainings of each setting, with seed, seed + 1, ...")
    grace_epochs: Int = Field(1, gt=0, description="epochs that ASHA grants to every trial")
    reduction: Int = Field(3, gt=1, description="ASHA keeps one trial in this many (Li et al., 2020: 3 or 4)")
    concurrent: Int | None = Field(None, gt=0, description="trials at a time; by default as the cluster has room for")
    draw_seed: Int = Field(0, ge=0, description="seed of the draws")

    def _misfits(self) -> Iterator[str]:
        given, other = ("rows", "space") if self.method == "rows" else ("space", "rows")
        if not getattr(self, given) or getattr(self, other):
            yield f"{given}: the method {self.method} needs it, and takes no {other}"
        keys = {f"space.{key}": key for key in self.space}
        keys |= {f"rows.{name}.{key}": key for name, row in self.rows.items() for key in row}
        for shown, key in keys.items():
            if key.partition(".")[0] not in _SEARCHABLE:
                yield (
                    f"{shown}: can be searched are keys of {', '.join(_SEARCHABLE)}; "
                    "anything else needs shards of its own, and so a search of its own"
                )
        if self.method == "asha" and self.seeds > 1:
            yield "seeds: asha ends trainings early, and those of one setting at different epochs: give 1"
        for key, domain in self.space.items():
            if self.method == "grid" and domain.values is None:
                yield f"space.{key}: a grid needs `values`; for a range choose another method"

    @property
    def domains(self) -> dict[str, Domain]:
        """The domains that are drawn from: the space, or the names of the rows."""
        return {ROW: Domain(values=tuple(self.rows))} if self.rows else self.space

    @property
    def is_exhaustive(self) -> bool:
        """Return whether every combination is tried."""
        return self.method in ("grid", "rows")

    @property
    def settings(self) -> int:
        """Settings that are tried."""
        if not self.is_exhaustive:
            return self.trials
        return math.prod(len(domain.extremes) for domain in self.domains.values())

    def most_epochs(self, config: PipelineConfig) -> int:
        """Return the epochs of the longest trial."""
        drawn = self.space.get("training.epochs", Domain(values=(config.training.epochs,)))
        return int(max(drawn.extremes))

    def values_of(self, drawn: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values by keys in dots of what was drawn, which may be the name of a row."""
        return self.rows[drawn[ROW]] if self.rows else drawn


def load_search(path: Path, overrides: Sequence[str] = ()) -> SearchConfig:
    """Load a search from YAML; ConfigError with all that is wrong about it."""
    layers = [read_layer(path), *(override_layer(item) for item in overrides)]
    values = merged(layers)
    try:
        return SearchConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, SearchConfig, values, layers)}") from None


def with_settings(config: PipelineConfig, settings: Mapping[str, Any], seed: int) -> PipelineConfig:
    """Return the configuration with a trial's values by keys in dots; ConfigError for a key or value not allowed."""
    values = config.model_dump(mode="json")
    if "start" not in config.model.text.model_fields_set:  # it follows from the aggregator
        values["model"]["text"].pop("start", None)
    for key, value in settings.items():
        *above, last = key.split(".")
        node: Any = values
        for part in above:
            node = node.get(part) if isinstance(node, dict) else None
        if not isinstance(node, dict):
            raise ConfigError(f"the search sets {key}: there is no such key in the configuration {config.name!r}")
        node[last] = value
    values["seed"] = seed
    try:
        return PipelineConfig.model_validate(values)
    except ValidationError as error:
        layers = [Layer("the search's space", nested(key.split("."), value)) for key, value in settings.items()]
        raise ConfigError(explain(error, PipelineConfig, values, layers)) from None


def check_space(config: PipelineConfig, search: SearchConfig) -> None:
    """Raise ConfigError if the configuration does not allow a key or an example of its values, before any training."""
    if search.method == "asha" and not search.most_epochs(config):
        raise ConfigError("the search ends trainings early (asha), which have no epochs: training.epochs is 0")
    for _ in examples(config, search):
        pass


def examples(config: PipelineConfig, search: SearchConfig) -> Iterator[PipelineConfig]:
    """Yield the configurations of all rows and of examples of each key's values; ConfigError for one not allowed."""
    for row in search.rows.values():
        yield with_settings(config, row, config.seed)
    first = {key: domain.extremes[0] for key, domain in search.space.items()}
    for key, domain in search.space.items():
        for value in domain.examples:
            yield with_settings(config, {**first, key: value}, config.seed)

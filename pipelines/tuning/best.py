"""The winner of a search as a configuration, which can be loaded by itself."""

from typing import Any

import yaml
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from pipelines.config import PipelineConfig


def as_file(config: PipelineConfig) -> str:
    """Return a configuration as YAML with all of its values, but the secret ones.

    Also those that are off, which records leave out: the preset, or the environment, may have others.
    """
    values = _completed(config, config.model_dump(mode="json"))
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def _completed(section: BaseModel, values: dict[str, Any]) -> dict[str, Any]:
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            values[name] = _completed(value, values.get(name, {}))
        elif name not in values and field.exclude_if is not bool:  # which leaves out secrets
            values[name] = to_jsonable_python(value)
    return values

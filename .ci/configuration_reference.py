"""Write docs/configuration.md: every key of a configuration, from the pydantic models.

Run: python .ci/configuration_reference.py, as `make docs` does.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pipelines.config import PipelineConfig
from pipelines.config.layers import merged, preset_layers
from pipelines.schema.fields import default_storage

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "configuration.md"
PRESET = "vse_infty"
INTRODUCTION = f"""\
# Configuration reference

Every key, by section. A file sets keys as YAML mappings, the command line as `--set training.epochs=5`. Later layers
win: preset, inherited files (`inherits: FILE`), the file, `--set`. A key that does not exist is an error, which names
the nearest one. `${{NAME}}` and `${{NAME:-default}}` are environment variables.

Sources of defaults are papers and released code, where the meaning names them. A default in italics is set by the
preset `{PRESET}`, and others may differ (`pipelines/config/presets/`); a key without default must be given.
"""
# A discriminator chooses one of several variants of a section.
DISCRIMINATORS = ("name", "format", "extractor")

Section = tuple[str, type[BaseModel]]


def sections(path: str, model: type[BaseModel]) -> Iterator[Section]:
    """Walk the models depth first: dotted path of a section, its model (one for each variant)."""
    yield path, model
    for name, field in model.model_fields.items():
        for inner in models_in(field.annotation):
            yield from sections(f"{path}.{name}".lstrip("."), inner)


def models_in(annotation: object) -> list[type[BaseModel]]:
    """Return the models that a type may hold."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in models_in(argument)]


def type_text(schema: dict[str, Any]) -> str:
    """Describe a field's JSON schema in a few words."""
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(map(type_text, schema[key])))
    if "$ref" in schema:
        return "section"
    kind = {"object": "mapping", "array": "list", "null": "none", "boolean": "true, false"}.get(
        schema.get("type", ""), schema.get("type", "text")
    )
    if schema.get("format") == "path":
        kind = "path"
    if kind == "string":
        kind = "text"
    if kind == "list" and "items" in schema:
        kind = f"list of {type_text(schema['items'])}"
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {schema[key]:g}" for key, sign in bounds.items() if key in schema]
    return " ".join([kind, ", ".join(limits)]).strip()


def default_text(name: str, field: FieldInfo, schema: dict[str, Any], preset: object) -> str:
    """Return the default of a key, or what the preset sets."""
    if isinstance(preset, dict) and name in preset and not isinstance(preset[name], dict):
        return f"*{json.dumps(preset[name])}*"
    if name == "work_dir":
        return "`$VSE_WORK_DIR`, else `~/vse-work`"
    if field.default_factory is default_storage:
        return "`$VSE_STORAGE`, else none"
    if field.is_required() or models_in(field.annotation):
        return ""
    default = schema.get("default", field.default)
    return "none" if default is None else f"`{json.dumps(default, default=str)}`"


def choice_of(model: type[BaseModel]) -> str:
    """Return what selects a variant of a section, "name: gpo"; "" if nothing does."""
    schema = model.model_json_schema(by_alias=False, mode="serialization")["properties"]
    return next((f"{key}: {schema[key]['const']}" for key in DISCRIMINATORS if "const" in schema.get(key, {})), "")


def heading(path: str, model: type[BaseModel], is_variant: bool) -> str:
    """Return the heading of a section."""
    return f"`{path or 'top level'}`" + (f" ({choice_of(model) or model.__name__})" if is_variant else "")


def links_to(path: str, models: list[type[BaseModel]]) -> str:
    """Return links to the sections that a key may have."""
    links = []
    for model in models:
        label = choice_of(model).partition(": ")[2] or model.__name__ if len(models) > 1 else "section"
        anchor = re.sub(r"[^\w\s-]", "", heading(path, model, len(models) > 1)).strip().lower().replace(" ", "-")
        links.append(f"[{label}](#{anchor})")
    return ", ".join(links)


def section_text(path: str, model: type[BaseModel], preset: object, is_variant: bool) -> str:
    """Return the heading, the idea and the table of a section."""
    schema = model.model_json_schema(by_alias=False, mode="serialization")["properties"]
    choice = choice_of(model)
    title = f"{'###' if '.' in path else '##'} {heading(path, model, is_variant)}"
    # A preset's values are those of its own variant.
    if isinstance(preset, dict) and any(key in preset and f"{key}: {preset[key]}" != choice for key in DISCRIMINATORS):
        preset = None if is_variant else preset
    lines = ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in model.model_fields.items():
        meaning = (field.description or "").replace("|", "\\|")
        default = default_text(name, field, schema[name], preset).replace("|", "\\|")
        inner = list(dict.fromkeys(models_in(field.annotation)))
        kind = links_to(f"{path}.{name}".lstrip("."), inner) if inner else type_text(schema[name])
        lines.append(f"| `{name}` | {kind} | {default} | {meaning} |")
    idea = inspect.getdoc(model) or ""
    source = Path(inspect.getfile(model)).relative_to(ROOT)
    return f"{title}\n\n{idea}\n\n" + "\n".join(lines) + f"\n\nDefined in `{source}`.\n"


def page() -> str:
    """Return the page."""
    found = list(dict.fromkeys(sections("", PipelineConfig)))
    paths = [path for path, _ in found]
    preset = merged(preset_layers(PRESET))
    texts = []
    for path, model in found:
        values: Any = preset
        for name in filter(None, path.split(".")):
            values = values.get(name) if isinstance(values, dict) else None
        texts.append(section_text(path, model, values if path else None, paths.count(path) > 1))
    return "\n".join([INTRODUCTION, *texts])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

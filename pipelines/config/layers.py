"""Layers of a configuration: reading them from YAML and the command line, and merging them.

Later layers win. Mappings are merged key by key, except if a layer names another variant (`name`, `format`,
`extractor`): then its mapping replaces the earlier one, whose options mean nothing to the new variant.
"""

import difflib
import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.config.yaml_text import load_yaml, read_yaml
from pipelines.schema.error import ConfigError
from pipelines.schema.fields import FileText

PRESETS = Path(__file__).resolve().with_name("presets")
# Configurations that come with the package; where that is, nobody has data.
PACKAGED = PRESETS.with_name("data")
# Settings of earlier versions, accepted at the value that turned them off.
REMOVED: dict[str, Any] = {
    "dataset.averaged": False,
    "dataset.id_mapping": None,
    "loss.view_orthogonality": 0,
    "training.view_dropout": 0,
    "training.profile_steps": 0,
    "features.shard_mb": None,
    "training.checkpoint_steps": 100,
    "training.chunk_size": None,
    "training.compile": False,
    "training.ema_decay": None,
    "training.gpu_type": None,
    "training.layer_decay": None,
    "training.norm_weight_decay": None,
    "training.placement": "PACK",
    "model.image.block_epochs": 0,
    "index": {"kind": "auto"},
}

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


@dataclass(frozen=True)
class Layer:
    """Values of one origin; the origin is for messages."""

    origin: str
    values: Mapping[str, Any]


def read_layer(path: Path) -> Layer:
    """Read a YAML file of configuration; ConfigError if it cannot be read, or does not hold a mapping."""
    try:
        values = read_yaml(path)
    except ValueError as error:
        raise ConfigError(f"--config {str(path)[:300]}: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"--config {path}: must hold a mapping of keys to values, got {type(values).__name__}")
    return Layer(str(path), _expanded(values, str(path)))


def file_layers(path: Path, heirs: tuple[Path, ...] = ()) -> list[Layer]:
    """Read a YAML file of configuration; `inherits: base.yaml` puts another one, from the same folder, below it.

    `heirs` are the files that inherit it. Raises ConfigError as `read_layer`, or if a file inherits itself.
    """
    if path in heirs:
        raise ConfigError(f"--config {heirs[0]}: inherits itself through {' and '.join(map(str, heirs[1:])) or path}")
    folder = path.absolute().parent
    values = dict(_placed(read_layer(path).values, Path.cwd() if folder == PACKAGED else folder))
    base = values.pop("inherits", None)
    if base is not None and not isinstance(base, str):
        raise ConfigError(f"inherits: must name one file in the folder of {path}, got {base!r}")
    if isinstance(values.get("plugins"), list):
        values["plugins"] = [_plugin_next_to(path, name) for name in values["plugins"]]
    own = Layer(str(path), values)
    return [own] if base is None else [*file_layers(path.parent / base, (*heirs, path)), own]


def _placed(value: Any, folder: Path) -> Any:
    """Return values whose texts know the folder of their file, from which relative paths start."""
    if isinstance(value, Mapping):
        return {key: _placed(item, folder) for key, item in value.items()}
    if isinstance(value, list):
        return [_placed(item, folder) for item in value]
    return FileText(value, folder) if isinstance(value, str) else value


def _plugin_next_to(path: Path, name: Any) -> Any:
    """Return the Python file of a plugin in the folder of a configuration; its name if there is none."""
    file = path.absolute().parent / f"{str(name).removesuffix('.py')}.py"
    return str(file) if file.is_file() else name


def override_layer(item: str) -> Layer:
    """Read one `key.in.dots=value` of the command line, the value as YAML; ConfigError if it is not of that form."""
    key, separator, text = item.partition("=")
    keys = key.strip().split(".")
    if not separator or not all(keys):
        raise ConfigError(f"--set {item}: write it as key=value with the parts of the key in dots: training.epochs=5")
    try:
        value = load_yaml(text)
    except ValueError as error:
        raise ConfigError(
            f"--set {key}={text[:80]!r}: is not YAML ({error}); put text with special signs in quotes"
        ) from None
    return Layer("--set", _expanded(nested(keys, value), f"--set {item}"))


def nested(keys: Sequence[str], value: Any) -> Any:
    """Return a value under keys, one mapping within the other."""
    for key in reversed(keys):
        value = {key: value}
    return value


def preset_layers(name: Any) -> list[Layer]:
    """Return the layers of a preset, those it inherits first; raises ConfigError if there is no such preset."""
    known = sorted(path.stem for path in PRESETS.glob("[!_]*.yaml"))
    if name not in known:
        raise ConfigError(f"preset: {name!r} is unknown; there are {', '.join(known)}{did_you_mean(str(name), known)}")
    return _preset_layers(name)


def _preset_layers(name: str) -> list[Layer]:
    """Return the layers of a preset, or of a part of presets (`_NAME`)."""
    values = dict(read_layer(PRESETS / f"{name}.yaml").values)
    inherited = itertools.chain.from_iterable(_preset_layers(parent) for parent in values.pop("inherits", []))
    return [*inherited, Layer(f"preset {name}", values)]


def _expanded(value: Any, origin: str) -> Any:
    """Replace `${NAME}` and `${NAME:-default}` in all strings by environment variables."""
    if isinstance(value, dict):
        return {key: _expanded(item, origin) for key, item in value.items()}
    if isinstance(value, list):
        return [_expanded(item, origin) for item in value]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        name, default = match.groups()
        if (replacement := os.environ.get(name) or default) is None:
            raise ConfigError(
                f"{origin}: environment variable {name} is not set: export it, or write ${{{name}:-default}}"
            )
        return replacement

    return _VARIABLE.sub(replace, value)


def merged(layers: Iterable[Layer]) -> dict[str, Any]:
    """Merge layers into one mapping, later ones over earlier ones."""
    values: dict[str, Any] = {}
    for layer in layers:
        # A model by name takes the place of one by its two sides, and the other way round.
        old, new = _mapping(values, "model"), _mapping(layer.values, "model")
        if ("name" in new and "name" not in old) or ("name" in old and {"image", "text"} <= new.keys()):
            values.pop("model", None)
        # The root and the registry have a `name` too, but there it is not a variant.
        parts = {key: _merge(values.get(key), value, key != "registry") for key, value in layer.values.items()}
        values = {**values, **parts}
    for path, off in REMOVED.items():
        *above, key = path.split(".")
        section: Any = values
        for part in above:
            section = section.get(part) if isinstance(section, dict) else None
        if isinstance(section, dict) and key in section and section[key] == off:
            del section[key]
    return values


def _mapping(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a section, empty if there is none."""
    section = values.get(key)
    return section if isinstance(section, dict) else {}


def _merge(old: Any, new: Any, may_be_variant: bool = True) -> Any:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    names = ("name", "format", "extractor") if may_be_variant else ()
    if any(key in old and key in new and old[key] != new[key] for key in names):
        return new
    return {**old, **{key: _merge(old.get(key), value) for key, value in new.items()}}


def did_you_mean(value: str, choices: Iterable[str]) -> str:
    """Return "; did you mean X?" for the most similar choice, or nothing if none is similar."""
    close = difflib.get_close_matches(value, list(choices), n=1)
    return f"; did you mean {close[0]}?" if close else ""

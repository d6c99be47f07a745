"""Parts from outside of the package: modules that a configuration names, and installed ones.

A plugin is a module with a function `register(vse)`, which is handed a `Registrar`. Import `load_plugins` from
`pipelines.config`, which has the settings that plugins add to.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from pipelines.schema.error import ConfigError
from pipelines.schema.fields import Strict
from pipelines.schema.variants import FAMILIES, Named
from vse_core import registry
from vse_core.digests import file_digest, json_digest

if TYPE_CHECKING:
    from torch import nn

    from pipelines.schema.losses import Loss
    from preprocessing.datasets import Dataset
    from preprocessing.features.extractor import Extractor
    from vse_core.losses import GlobalLoss

GROUP = "vse.plugins"
VARIABLE = "VSE_PLUGINS"
"""The environment variable of processes without a configuration: references of plugins, separated as in PATH."""

STAGES: list[Any] = []
"""The stages that plugins have added."""

KINDS: list[Any] = []
"""The kinds of models that plugins have added."""


@dataclass(frozen=True)
class Plugin:
    """A module with parts: the reference that it was loaded by, its file, and the sha256 of its sources.

    The sources of a package are all Python files in its folder, those of a single file that file alone.
    """

    reference: str
    file: Path
    digest: str

    def __str__(self) -> str:
        return f"the plugin {self.reference}"

    @property
    def name(self) -> str:
        """The name of its module."""
        return _module_of(self.reference)


_LOADED: dict[str, Plugin] = {}
_OF_SETTINGS: dict[type[BaseModel], Plugin] = {}


class Registrar:
    """The object that a plugin adds its parts with.

    Settings are a class of `pipelines.schema.fields.Strict`, or of the family's own base, in which a `Literal` names
    the part: `name: Literal["median"]`; data sets have a `format`, extractors an `extractor`. The other fields are the
    part's options. Every method raises ValueError if there is a part of the name already.
    """

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin

    def pooling(self, settings: type[Strict], build: Callable[..., nn.Module]) -> None:
        """Add an aggregator: `build(**options)`, with the width as `dim` if it takes one, is a module like those of
        `vse_core.pooling`.
        """
        self._add("pooling", settings, build)

    def loss(self, settings: type[Loss], build: Callable[..., GlobalLoss]) -> None:
        """Add a loss of embeddings; settings derive from `pipelines.schema.losses.Loss`."""
        self._add("loss", settings, build)

    def format(self, settings: type[Strict], build: Callable[..., Dataset]) -> None:
        """Add a data set format; settings derive from `DatasetSettings` of `pipelines.config.datasets`."""
        from preprocessing.datasets import DATASET_FORMATS

        self._add("format", settings, build, DATASET_FORMATS)

    def extractor(self, settings: type[Strict], build: Callable[..., Extractor]) -> None:
        """Add a feature extractor; settings derive from a class of `pipelines.config.features` and have the features'
        key, `member`.
        """
        from preprocessing.features import EXTRACTORS

        self._add("extractor", settings, build, EXTRACTORS)

    def protocol(self, settings: type[Named], evaluate: Callable[[Any, Any], Any]) -> None:
        """Add a protocol, which `evaluation.added` of a configuration asks for.

        `evaluate(embedded, settings)` gets `Embedded` and gives `Results` of `pipelines.evaluation.protocols`.
        """
        self._add("protocol", settings, evaluate)

    def stage(self, settings: type[Named], stage: Any) -> None:
        """Add a stage, a `pipelines.stages.stage.Stage`, after all others; `stages` of a configuration asks for it."""
        self._add("stage", settings, stage.run)
        STAGES.append(stage)

    def kind(self, settings: type[Loss], build: Callable[..., GlobalLoss], kind: Any) -> None:
        """Add a kind of model, a `pipelines.kinds.kind.ModelKind`, with the loss by whose name it is known."""
        self._add("loss", settings, build)
        KINDS.append(kind)

    def _add(
        self, family: str, settings: type[Strict], build: Callable[..., Any], builders: dict[str, Any] | None = None
    ) -> None:
        """Add a part's settings and its builder, which a family may have a table of its own for."""
        variants = FAMILIES[family]
        for name in variants.names(settings):
            if name in variants.classes:
                other = _OF_SETTINGS.get(variants.classes[name], "the package itself")
                raise ValueError(f"it adds the {family} {name!r}, which {other} has already")
            registry.add(family, name, build, str(self._plugin))
            if builders is not None:
                builders[name] = build
        variants.add(settings)
        _OF_SETTINGS[settings] = self._plugin


def load_plugins(references: Any = ()) -> None:
    """Load the installed plugins, those of VSE_PLUGINS, and those that a configuration names.

    References are paths of Python files, or names of modules. What is loaded already stays as it is. Raises ConfigError
    if a plugin cannot be imported, or adds what there is.
    """
    _load_installed()
    if not isinstance(references, Sequence) or not all(isinstance(each, str) for each in references):
        raise ConfigError(f"plugins: must be a list of modules, or of Python files, got {references!r:.200}")
    for reference in [*filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)), *references]:
        _load(reference)


@cache
def _load_installed() -> None:
    for point in entry_points(group=GROUP):
        _load(point.value)


def _load(reference: str) -> None:
    name = _module_of(reference)
    loaded = _LOADED.get(name)
    if loaded is not None:
        if loaded.reference != reference:
            raise ConfigError(f"plugins: {reference} has the name of {loaded}; rename one of them")
        return
    module = _imported(name, reference)
    if not hasattr(module, "register"):
        raise ConfigError(f"plugins: {reference} is not a plugin: it has no function register(vse)")
    file = Path(module.__file__ or "")
    files = sorted(file.parent.rglob("*.py")) if module.__package__ else [file]
    plugin = Plugin(reference, file, json_digest([file_digest(each) for each in files]))
    try:
        module.register(Registrar(plugin))
    except ValueError as error:
        raise ConfigError(f"plugins: {reference}: {error}") from error
    _LOADED[name] = plugin


def _module_of(reference: str) -> str:
    return Path(reference).stem if reference.endswith(".py") else reference


def _imported(name: str, reference: str) -> ModuleType:
    """Import a module by its name, for which the folder of a file is looked through last."""
    folders = [str(Path(reference).parent)] if name != reference else []
    sys.path.extend(folders)
    try:
        module = importlib.import_module(name)
    except Exception as error:
        raise ConfigError(f"plugins: {reference} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        for folder in folders:
            sys.path.remove(folder)
    # The workers of other machines have a copy of the file.
    if folders and VARIABLE not in os.environ and not Path(reference).samefile(module.__file__ or ""):
        raise ConfigError(f"plugins: {reference}: Python knows another module as {name}; rename the file")
    return module


def sources(*settings: object) -> dict[str, Any]:
    """Return the digests of the plugins that settings are of, for a fingerprint; nothing if they are of none."""
    found = {plugin.name: plugin.digest for each in settings for plugin in _plugins_of(each)}
    return {"plugins": found} if found else {}


def _plugins_of(value: object) -> Iterator[Plugin]:
    if isinstance(value, BaseModel):
        if type(value) in _OF_SETTINGS:
            yield _OF_SETTINGS[type(value)]
        value = list(vars(value).values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _plugins_of(each)


def plugin_variable() -> dict[str, str]:
    """Return the environment variable by which another process loads the plugins of this one; nothing without any."""
    return {VARIABLE: os.pathsep.join(plugin.reference for plugin in _LOADED.values())} if _LOADED else {}


def worker_environment() -> dict[str, Any]:
    """Return the environment in which every Ray worker loads this process's plugins before it does anything."""
    if not _LOADED:
        return {}
    return {
        "env_vars": plugin_variable(),
        "py_modules": [plugin.reference for plugin in _LOADED.values() if plugin.reference.endswith(".py")],
        "worker_process_setup_hook": "pipelines.config.load_plugins",
    }

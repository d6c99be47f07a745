"""The identity of an extractor, which plans need.

It needs torch and the loaded weights, which takes longer than the rest of a plan. So it is cached in
`<work_dir>/extract/extractors/` for as long as neither the extractor's files nor its code change.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pipelines.config import ConfigError
from pipelines.config.features import EXTRACTORS, Features, NetworkFeatures
from pipelines.plugins import sources
from pipelines.runtime.stage import fingerprint
from preprocessing.features import build_extractor
from preprocessing.features.extractor import ExtractorError
from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.atomic import write_json_atomic
from preprocessing.storage.mirror import Mirror
from vse_core.digests import sealed, unsealed
from vse_core.hub import require_on_hub

_CACHE = "extract/extractors"


def extractor_options(features: Features) -> dict[str, Any]:
    """Return the keyword arguments of the extractor, device included."""
    options = {**features.options(), **features.limits}
    if isinstance(features, NetworkFeatures):
        options["device"] = "cuda" if features.gpus_per_actor else "cpu"
    return options


def extractor_identity(features: Features, mirror: Mirror) -> dict[str, Any]:
    """Return the identity of the extractor; raises ConfigError if it cannot be built."""
    name, options, plugin = features.extractor, features.options(), sources(features)
    origin = Path(options.get("weights") or EXTRACTORS)
    if not origin.exists():  # on the hub, where it may change
        return _computed_identity(name, json.dumps(options), "") | plugin
    files = [*(origin.rglob("*") if origin.is_dir() else [origin]), *EXTRACTORS.rglob("*.py")]
    with damage_as(ConfigError, f"features: {origin} is incomplete", "copy it again, or remove broken links"):
        stamps = sorted([str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in files)
    versions = [metadata.version(package) for package in ("transformers", "timm", "torchvision", "pillow")]
    key = fingerprint([name, options, stamps, *versions, *plugin.items()])
    return _cached(mirror, key, lambda: _computed_identity(name, json.dumps(options), key)) | plugin


@lru_cache(maxsize=8)
def _computed_identity(name: str, options: str, state: str) -> dict[str, Any]:
    """Build the extractor for its identity, once in a process for each `state` of its files, "" for the hub's."""
    settings = json.loads(options)
    try:
        if not state and not settings.get("network"):
            require_on_hub(settings["weights"])  # transformers would ask it for half a minute
        return build_extractor(name, **settings).identity()
    except (ExtractorError, ValueError) as error:
        raise ConfigError(f"features: {error}") from error


def _cached(mirror: Mirror, key: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the cache entry under a key, which is computed if there is none; a dry run does not keep it."""
    entry = mirror.root / _CACHE / f"{key[:16]}.json"
    if not entry.is_file():
        content = compute()
        if mirror.is_read_only:
            return content
        entry.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(entry, sealed({"content": content}))
    with damage_as(ConfigError, f"features: the cache entry {entry} is damaged", "delete it"):
        record = unsealed(parse_json(entry.read_bytes()), entry, "delete it")
        return dict(record.get("content", record))  # format 1 has the content alone

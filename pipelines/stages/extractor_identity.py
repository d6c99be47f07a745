"""What planning asks of an extractor: its identity, and how large its features are.

Asking means importing torch and loading weights, which takes longer than all the rest of a plan. Answers are noted in
`<work_dir>/extract/extractors/`, and hold for as long as neither the extractor's files nor its code change.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pipelines.config import ConfigError, PipelineConfig
from pipelines.config.features import EXTRACTORS, Features, NetworkFeatures, SeveralFeatures
from pipelines.runtime.stage import fingerprint
from preprocessing import extraction
from preprocessing.datasets import Dataset
from preprocessing.storage.atomic import write_json_atomic

_NOTES = "extract/extractors"


def extractor_options(config: PipelineConfig) -> dict[str, Any]:
    """Keyword arguments of the extractor, device included."""
    features = config.features
    if isinstance(features, NetworkFeatures | SeveralFeatures):
        return {**features.options(), "device": "cuda" if features.gpus_per_actor else "cpu"}
    return features.options()


def extractor_identity(config: PipelineConfig) -> dict[str, Any]:
    """Return the identity of what makes the features, or of all that make them.

    Raises:
        ConfigError: an extractor cannot be built.
    """
    identities = [_identity(part, config.work_dir) for part in config.features.parts]
    return identities[0] if len(identities) == 1 else {"several": identities}


def extractor_bytes(config: PipelineConfig, dataset: Dataset) -> int:
    """Return the bytes that an image takes in a shard, by the first usable image of the training split.

    Raises:
        ConfigError: the extractor cannot be built, or no image is usable.
    """
    split = config.dataset.train_split

    def ask() -> dict[str, int]:
        """Compute the features of one image and add up their bytes."""
        from preprocessing.features import ExtractorError, build_extractor

        try:
            extractor = build_extractor(config.features.extractor, **config.features.options())
            return {"bytes": extraction.sample_bytes(dataset, split, extractor)}
        except (ExtractorError, ValueError) as error:
            raise ConfigError(f"features: {error}") from error

    question = ["bytes", split, config.dataset.model_dump(mode="json"), extractor_identity(config)]
    noted: dict[str, int] = _noted(config.work_dir, fingerprint(question), ask)
    return noted["bytes"]


def _identity(features: Features, work_dir: Path) -> dict[str, Any]:
    name, options = features.extractor, features.options()
    origin = Path(options.get("weights") or options.get("source") or EXTRACTORS)
    if not origin.exists():  # on the hub, where it may change
        return _asked_identity(name, json.dumps(options), "")
    files = [*(origin.rglob("*") if origin.is_dir() else [origin]), *EXTRACTORS.rglob("*.py")]
    stamps = sorted([str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in files)
    key = fingerprint([name, options, stamps, *map(metadata.version, ("transformers", "torchvision", "pillow"))])
    return _noted(work_dir, key, lambda: _asked_identity(name, json.dumps(options), key))


@lru_cache(maxsize=8)
def _asked_identity(name: str, options: str, state: str) -> dict[str, Any]:  # noqa: ARG001 (a key of the cache)
    """Ask the extractor, once in a process for each `state` of its files."""
    from preprocessing.features import ExtractorError, build_extractor

    try:
        return build_extractor(name, **json.loads(options)).identity()
    except ExtractorError as error:
        raise ConfigError(f"features: {error}") from error


def _noted(work_dir: Path, key: str, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer to a question with this key, which is asked where there is no note of it."""
    note = work_dir / _NOTES / f"{key[:16]}.json"
    if not note.is_file():
        note.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(note, ask())
    answer: dict[str, Any] = json.loads(note.read_text(encoding="utf-8"))
    return answer

"""600 configurations with a wrong key, type, number or sign: refused, or used as they are written.

What is loaded is compared with what another YAML reader finds in the file, value by value.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.config import DEFAULT_CONFIG, load_config
from pipelines.stages.preflight import check_before_start
from tests.integration.seams.attack import Case, attacked, never, script

# As they stand in the file -> what they are in YAML 1.2, if that is not what PyYAML reads.
ODD: dict[str, Any] = {
    text: yaml.safe_load(text)
    for text in (
        "null", "true", "-1", "0", "1", "2.5", "1.0e+3", ".inf", "-.inf", ".nan", "99999999999999999999",
        "''", "x", "'3'", "[]",
        "{}", "[1, 2]", "[[]]", "{a: 1}", "2024-02-20", "!!binary aGk=", "🐕", "../x", "'a\\b'", "\"\\e[31m\"",
        "1_000x",
        "'  '", "1.0e-400", "-0.0", "[null]", "{null: 1}", "{1: 2}", "!!set {a}", "!!str 5", "!!float 5",
        "'${HOME}'", "9e99",
    )
} | {"1:30": "1:30", "0x10": "0x10", "010": 10, "yes": "yes", "off": "off", "1_000": "1_000",
    "x" * 5000: "x" * 5000}  # fmt: skip
SYNTAX = [
    *list("\t:-#{}[],&*!|>'\"%@` \n\x00\x07\x85\u2028?~"),
    "---\n",
    "<<: *a\n",
    "${",
    "${X:-",
    "${X}",
    "\ufeff",
    "&a ",
    "*a",
    "\r",
    "é",
]


def _leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(node, dict) and node:
        for key, child in node.items():
            yield from _leaves(child, (*path, str(key)))
    elif path:
        yield path, node


def _load(file: Path, work: Path) -> None:
    """Load and check a file, and print every value of the configuration."""
    config = load_config(file, [f"work_dir={work}"]).for_dry_run()
    check_before_start(config)
    print(json.dumps(list(_leaves(config.model_dump(mode="json"))), default=str))


def _is_as_written(written: Any) -> Callable[[str], bool]:
    """Every value of the file has come through: numbers as numbers, text as text."""

    def correct(printed: str) -> bool:
        loaded = {tuple(path): value for path, value in json.loads(printed)}
        return all(
            _equal(value, loaded.get(path, _MISSING)) or _is_short_for(path, value, loaded)
            for path, value in _leaves(written)
            if path[0] not in ("inherits", "work_dir")
        )

    return correct


_MISSING = object()


def _equal(written: Any, loaded: Any) -> bool:
    if written == {} or written is None:  # the defaults of a group, or no value
        return True
    if isinstance(written, bool) or isinstance(loaded, bool):
        return written is loaded
    if isinstance(written, int | float) and isinstance(loaded, int | float):
        return math.isclose(written, loaded, rel_tol=1e-12)
    if isinstance(written, str) and isinstance(loaded, str):
        return loaded.endswith(os.path.expandvars(written).removeprefix("../"))
    if isinstance(written, str) and re.fullmatch(r"[0-9.]+", written):
        return float(written) == loaded
    return written == loaded or str(written) == str(loaded)


def _is_short_for(path: tuple[str, ...], value: Any, loaded: dict[tuple[str, ...], Any]) -> bool:
    """A name alone stands for a group with that name, and a duration for its number and unit."""
    below = {key[len(path) :]: each for key, each in loaded.items() if key[: len(path)] == path}
    return value in below.values() or str(value).split() == [str(each) for each in below.values()][:2]


def _settings(draw: random.Random, default: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield endlessly a name, the text of a file, and what it says."""
    leaves = [path for path, _ in _leaves(default) if path[0] not in ("work_dir",)]
    while True:
        path, text = draw.choice(leaves), draw.choice(list(ODD))
        path = path[: draw.randint(1, len(path))] if draw.random() < 0.15 else path
        nested = f"inherits: {DEFAULT_CONFIG}\n" + "".join(
            f"{'  ' * depth}{key}:{f' {text}' if depth == len(path) - 1 else ''}\n" for depth, key in enumerate(path)
        )
        value: Any = ODD[text]
        for key in reversed(path):
            value = {key: value}
        yield f"{'.'.join(path)}: {text[:40]}", nested, value


def _misspelt(draw: random.Random, default: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    leaves = [path for path, _ in _leaves(default)]
    while True:
        path = list(draw.choice(leaves))
        place = draw.randrange(len(path))
        key, at = path[place], draw.randrange(len(path[place]))
        path[place] = draw.choice([key[:at] + key[at + 1 :] + "x", key.upper(), f'"{key}\\0"', key * 9, f"{key}.{key}"])
        text = f"inherits: {DEFAULT_CONFIG}\n" + "".join(f"{'  ' * depth}{key}:\n" for depth, key in enumerate(path))
        yield f"key {'.'.join(path)[:60]}", text.rstrip("\n") + " 3\n", {"not": {"a": "key"}}


def _syntax(draw: random.Random, _default: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    whole = DEFAULT_CONFIG.read_text(encoding="utf-8")
    while True:
        at, sign = draw.randrange(len(whole)), draw.choice(SYNTAX)
        kind = draw.randrange(4)
        text = [
            whole[:at] + sign + whole[at:],
            whole[:at] + whole[at + draw.randint(1, 9) :],
            whole[:at] + whole[max(0, at - draw.randint(1, 30)) :],
            whole[:at] + sign,
        ][kind]
        try:
            says = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, TypeError):
            says = None
        yield f"syntax {kind} at {at} with {sign!r}", text, says if isinstance(says, dict) else None


def _repeats_a_key(text: str) -> bool:
    keys = [line.partition(":")[0] for line in text.splitlines() if re.match(r"[a-z_]+:", line)]
    return len(keys) != len(set(keys))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_configurations(tmp_path: Path) -> None:
    draw = random.Random(42)
    default = load_config(None).model_dump(mode="json")
    kinds = [(_settings, 360), (_misspelt, 60), (_syntax, 172)]
    cases = []
    for kind, count in kinds:
        for name, text, says in islice(kind(draw, default), count):
            file = tmp_path / f"{len(cases)}.yaml"
            file.write_text(text, encoding="utf-8", newline="")
            correct = never if says is None or _repeats_a_key(text) else _is_as_written(says)
            cases.append(Case(name, lambda file=file: _load(file, tmp_path / "work"), correct))
            if len(cases) % 75 == 0:  # the same through a command
                command = ("full", "--config", file, "--set", f"work_dir={tmp_path / 'work'}", "--dry-run")
                cases.append(
                    Case(f"command: {name}", lambda command=command: script(*command), lambda out: "to do" in out)
                )
    defects = attacked("configurations", cases)
    assert not defects, "\n".join(defects)

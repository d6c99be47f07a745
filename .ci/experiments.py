"""Write docs/experiments.md: every table and figure of the four papers and its commands, from experiments.yaml.

Run: python .ci/experiments.py, as `make docs` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "experiments.md"
FOLDERS = {"--config": "pipelines/config/data", "--search": "pipelines/config/searches"}
INTRODUCTION = """\
# Experiments of the papers

Every table and figure of the four papers, and the commands that make it here. A model is trained by `full.py`, which
selects and registers it by the development split, and is evaluated on the test split by `evaluate.py`. Where it has
been trained for another row, the command ends at once. Searches (`tune.py`) print their tables of the development
split: rows compare with each other, not with the printed ones, which are of the test split.

`$VSE_DATA` has the data ([formats](data.md)), `$VSE_WEIGHTS` the weights of fine-tuned networks. The printed results
are in `pipelines/reporting/published.csv`. None of these trainings was run here, for want of GPU time and of
COCO features. Figures that only illustrate a method are left out.
"""


def load() -> dict[str, Any]:
    """Return the experiments."""
    content: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return content


def commands(experiment: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the commands of each row of an experiment."""
    rows = {row: list(model_commands(parts, data)) for row, parts in experiment.get("models", {}).items()}
    rows |= experiment.get("commands", {})
    return {row: [written(command) for command in found] for row, found in rows.items()}


def model_commands(parts: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the trainings of a model or of the members of an ensemble, and its evaluation, on each data set."""
    for name, kinds in data.items():
        members = []
        for kind, presets in parts.items():
            config, split, protocols = (kinds[kind][key] for key in ("config", "split", "protocols"))
            for preset in [presets] if isinstance(presets, str) else presets:
                members.append((f"{name}-{preset}/1", config, split))
                yield f"full.py --config {config} --set preset={preset} --set name={name}-{preset}"
        named = " ".join(f"--protocol {protocol}" for protocol in protocols)
        if len(members) == 1:
            ((model, config, split),) = members
            yield f"evaluate.py --config {config} --split {split} {named} --model {model}"
        else:
            # The first member's configuration names the MLflow server; each has its own data and split.
            each = " ".join(
                f"--model {model} {FOLDERS['--config']}/{config} {split}" for model, config, split in members
            )
            yield f"evaluate.py --config {members[0][1]} {named} {each}"


def written(command: str) -> str:
    """Return a command with its folders."""
    words = command.split(" ")
    for place, word in enumerate(words[1:], start=1):
        if words[place - 1] in FOLDERS:
            words[place] = f"{FOLDERS[words[place - 1]]}/{word}"
    return f"python {words[0] if '/' in words[0] else 'pipelines/' + words[0]} {' '.join(words[1:])}".rstrip()


def page() -> str:
    """Return the page."""
    content = load()
    parts = [INTRODUCTION]
    for paper in content["papers"]:
        parts.append(f"## {paper['paper']}\n\n{paper['article']}.\n")
        for experiment in paper["experiments"]:
            parts.append(f"### {experiment['what']}\n")
            if "about" in experiment:
                parts.append(f"{experiment['about']}\n")
            rows = commands(experiment, content["data"])
            blocks = [f"# {row}\n" + "\n".join(f"$ {command}" for command in found) for row, found in rows.items()]
            if blocks:
                parts.append("```console\n" + "\n\n".join(blocks) + "\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

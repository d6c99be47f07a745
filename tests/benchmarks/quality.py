"""Record what a finished run has reached: the metrics of its evaluation, its curve, its hyperparameters.

Run: python pipelines/full.py --config pipelines/config/data/flickr8k.yaml
     python tests/benchmarks/quality.py --config pipelines/config/data/flickr8k.yaml

What evaluate.py --model has found out about the same model later is added to the record by --evaluation DIRECTORY.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from reader import RESULTS, machine

from pipelines.config import PipelineConfig, load_config
from pipelines.runtime.stage import manifest_in
from pipelines.stages.runner import plan_stages
from preprocessing.storage.atomic import write_json_atomic


def main() -> None:
    """Write the result of a run, or add to it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--evaluation", type=Path, metavar="DIRECTORY", help="add the metrics of this evaluation")
    arguments = parser.parse_args()
    config = load_config(arguments.config, arguments.set)
    path = RESULTS / f"{config.name}-seed{config.seed}.json"
    if arguments.evaluation is not None:
        result = json.loads(path.read_text(encoding="utf-8"))
        result["metrics"] |= manifest_in(arguments.evaluation)["metrics"]
    else:
        result = finished_run(config, arguments)
    write_json_atomic(path, result)
    print(json.dumps(result, indent=1))


def finished_run(config: PipelineConfig, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the figures in the manifests of a run."""
    plans = plan_stages(config)
    manifests = {name: manifest_in(plans[name].directory) for name in ("train", "evaluate")}
    trained = manifests["train"]
    settings = {"model", "loss", "training", "seed", "preset"}
    overrides = "".join(f" --set {item}" for item in arguments.set)
    return {
        "command": f"python pipelines/full.py --config {arguments.config}{overrides}",
        "split": config.dataset.eval_split,
        "metrics": manifests["evaluate"]["metrics"],
        "chance_rsum": trained["chance"],
        "rsum_by_epoch": [round(epoch["rsum"], 2) for epoch in trained["history"]],
        # Of the last start alone, where the run was interrupted and resumed.
        "seconds_since_last_start": trained["seconds"],
        "fingerprint": trained["fingerprint"],
        "recipe": config.model_dump(mode="json", include=settings),
        "machine": machine(),
    }


if __name__ == "__main__":
    main()

"""What decides an evaluation: everything that a protocol reads besides the model and the features."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.config import load_config
from pipelines.runtime.stage import StagePlan
from pipelines.stages.evaluate.plan import evaluation_content

GRAPHS = {"parse": StagePlan("parse", "f", Path(), 1, 1, "shards", "", {})}


@pytest.mark.parametrize(
    ("protocol", "is_read"), [("flickr8k_1k", False), ("attack", True), ("dependencies", True), ("components", False)]
)
def test_pools_decide_protocols_that_read_them(protocol: str, is_read: bool) -> None:
    contents = [
        evaluation_content(
            load_config(None, [f"evaluation.protocols=[retrieval, {protocol}]", f"pools.min_adjectives={fewest}"]),
            GRAPHS,
        )
        for fewest in (1, 10)
    ]
    assert (contents[0] != contents[1]) == is_read


@pytest.mark.parametrize(("protocol", "is_read"), [("dependencies", False), ("components", True)])
def test_detections_decide_the_protocol_that_reads_them(protocol: str, is_read: bool, tmp_path: Path) -> None:
    annotations, instances = tmp_path / "dataset_coco.json", tmp_path / "instances.json"
    annotations.write_text("{}")
    dataset = {"format": "karpathy", "images": str(tmp_path), "annotations": str(annotations)}
    contents = []
    for found in (None, "{}", "[]"):
        named = {} if found is None else {"instances": [str(instances)]}
        instances.write_text(f"{found} ")
        overrides = [f"dataset={json.dumps(dataset | named)}", f"evaluation.protocols=[retrieval, {protocol}]"]
        contents.append(json.dumps(evaluation_content(load_config(None, overrides), GRAPHS)))
    assert len(set(contents)) == (3 if is_read else 1)

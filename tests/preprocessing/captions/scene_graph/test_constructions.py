"""Each construction of a caption, parsed with subtypes of labels or without, gives the same graph."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from preprocessing.captions.scene_graph.parse import extract_graph
from tests.preprocessing.captions.scene_graph.parses import attributes, listed, objects, parsed, relations

CASES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("constructions.yaml").read_text())


@pytest.mark.parametrize(
    ("scheme", "name"),
    [
        (scheme, name)
        for name, case in CASES.items()
        for scheme in ["ud"] + ([] if case.get("needs_subtypes") else ["without subtypes"])
    ],
)
def test_graph(scheme: str, name: str) -> None:
    case = CASES[name]
    arcs = case["ud"]
    if scheme == "without subtypes":
        arcs = re.sub(r":\w+>", ">", arcs)
    graph = extract_graph(parsed(case["words"], arcs))
    assert objects(graph) == case.get("objects", "")
    assert relations(graph) == listed(case.get("relations", ""))
    assert attributes(graph) == listed(case.get("attributes", ""))

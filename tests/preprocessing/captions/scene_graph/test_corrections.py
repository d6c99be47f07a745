"""Faults that the shipped parser makes do not reach the graph; pronouns stand for what they must."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from preprocessing.captions.scene_graph.parse import extract_graph
from tests.preprocessing.captions.scene_graph.parses import attributes, listed, objects, parsed, relations

CASES: dict[str, dict[str, str]] = {
    name: case
    for file in ("corrections.yaml", "pronouns.yaml")
    for name, case in yaml.safe_load(Path(__file__).with_name(file).read_text()).items()
}


@pytest.mark.parametrize("name", CASES)
def test_graph(name: str) -> None:
    case = CASES[name]
    graph = extract_graph(parsed(case["words"], case["arcs"]))
    assert objects(graph) == case.get("objects", "")
    assert attributes(graph) == listed(case.get("attributes", ""))
    assert relations(graph) == listed(case.get("relations", ""))

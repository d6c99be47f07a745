"""The doctor's checks on given facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra import checks
from infra.checks import Finding, NodeFacts

VERSIONS = {"python": "3.11.7", "vse-pipeline": "0.1.0", "ray": "2.60.0", "torch": "2.15.0"}
NODE = NodeFacts("a", VERSIONS, free_bytes=50 * 10**9)


def other(**versions: str) -> NodeFacts:
    return replace(NODE, node="b", versions=VERSIONS | versions)


def test_a_line_says_what_is_wrong_and_the_remedy() -> None:
    assert Finding("disk", "a has room").line() == "ok    disk: a has room"
    assert Finding("disk", "a is full", "make room").line() == "WRONG disk: a is full; make room"


def test_equal_versions_are_well() -> None:
    found = checks.check_versions([NODE, other()])
    assert found.passed
    assert found.says == "2 machines: Python 3.11.7, ray 2.60.0, torch 2.15.0"


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (other(ray="2.59.0"), "b has ray 2.59.0, a 2.60.0"),
        (other(ray=""), "b has no ray, a 2.60.0"),
        (other(python="3.12.1"), "b has python 3.12.1, a 3.11.7"),
        (other(torch="2.16.0"), "b has torch 2.16.0, a 2.15.0"),
        (other(**{"vse-pipeline": ""}), "b has no vse-pipeline"),
    ],
)
def test_other_versions_are_named(node: NodeFacts, said: str) -> None:
    found = checks.check_versions([NODE, node])
    assert not found.passed
    assert said in found.says


def test_gpus_there_are_named_by_kind() -> None:
    found = checks.check_gpus([replace(NODE, gpus=["A10G", "A10G"]), replace(other(), gpus=["H100"])], 3, {})
    assert found.passed
    assert found.says == "2 x A10G, 1 x H100; the configuration asks for 3"


@pytest.mark.parametrize(
    ("node", "wanted", "counted", "said"),
    [
        (NODE, 0.5, {}, "0 available, the configuration asks for 0.5"),
        (replace(NODE, gpus=["A10G"]), 1, {"a": 2.0}, "a: Ray counts 2 GPUs, torch sees 1"),
        (replace(NODE, problems={"GPUs": ["no kernel image"]}), 0, {}, "a: no kernel image"),
    ],
)
def test_gpus_that_are_amiss(node: NodeFacts, wanted: float, counted: dict[str, float], said: str) -> None:
    found = checks.check_gpus([node], wanted, counted)
    assert said in found.says
    assert not found.passed


def test_disks_need_room_for_a_shard_and_the_cache() -> None:
    assert checks.check_disk([NODE], 40e9).passed
    full = checks.check_disk([NODE], 41e9)
    assert full.says == "a has 50.0 GB free, 51 GB are needed"
    assert not full.passed
    assert "no space" in checks.check_disk([replace(NODE, problems={"disk": ["no space"]})], 0).says


def test_storage_is_tried_on_every_machine() -> None:
    assert checks.check_storage([NODE], []).passed
    assert checks.check_storage([NODE, other()], ["s3://b/f"]).says == "2 machines: s3://b/f written, read and deleted"
    found = checks.check_storage([NODE, replace(other(), problems={"storage": ["denied"]})], ["s3://b/f"])
    assert found.says == "b: denied"
    assert not found.passed


def test_many_problems_are_counted() -> None:
    nodes = [replace(NODE, node=f"n{i}", problems={"disk": ["full"]}) for i in range(9)]
    assert checks.check_disk(nodes, 0).says == "n0: full, n1: full, n2: full, and 6 more"

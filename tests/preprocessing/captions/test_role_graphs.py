"""Role graphs in the released format against the rules of the released code, and files that are wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preprocessing.captions.role_graphs import (
    ACTIONS,
    ENTITIES,
    LONGEST,
    ROLES,
    RoleGraphError,
    RoleGraphTable,
    read_role_graphs,
)
from preprocessing.shards.split_index import map_fields, save_fields

CAPTION = "a man fries an egg slowly"
NODES: dict[str, Any] = {
    "ROOT": {"role": "ROOT", "spans": [0, 1, 2, 3, 4, 5], "words": CAPTION.split()},
    "1": {"role": "V", "spans": [2], "words": ["fries"]},
    "2": {"role": "ARG0", "spans": [0, 1], "words": ["a", "man"]},
    "3": {"role": "C-ARG1", "spans": [3, 4], "words": ["an", "egg"]},
    "4": {"role": "ARGM-XYZ", "spans": [5], "words": ["slowly"]},
}
EDGES = [["1", "2", "ARG0"], ["1", "3", "ARG1"], ["1", "9", "ARG2"], ["2", "3", "ARG1"]]


def written(folder: Path, content: object) -> Path:
    path = folder / "sent2rolegraph.augment.json"
    path.write_text(json.dumps(content))
    return path


def read(folder: Path, content: object) -> dict[str, Any]:
    return read_role_graphs(written(folder, content))


def test_a_table_has_the_graph_of_each_caption(tmp_path: Path) -> None:
    graphs = read(tmp_path, {CAPTION: [NODES, EDGES], "Egg": [{"ROOT": {"role": "ROOT", "spans": [0]}}, []]})
    table = RoleGraphTable.build([CAPTION, "Egg"], graphs)
    assert len(table) == 2
    save_fields(table, tmp_path)
    mapped = RoleGraphTable(**map_fields(RoleGraphTable, tmp_path)).select(np.array([1, 0]), 6)
    found = table.select(np.array([1, 0]), 6)
    assert all(np.array_equal(mapped[name], found[name]) for name in found)
    assert found["actions_CAL"].shape == (2, ACTIONS, 6)
    assert not found["actions_CAL"][0].any()
    assert not found["entities_CEL"][0].any()
    assert np.argwhere(found["actions_CAL"][1]).tolist() == [[0, 2]]
    assert np.argwhere(found["entities_CEL"][1]).tolist() == [[0, 0], [0, 1], [1, 3], [1, 4], [2, 5]]
    assert found["roles_CE"][1].tolist() == [2, 1, 15, 0, 0, 0]
    assert (ROLES[2], ROLES[1], ROLES[15], len(ROLES)) == ("ARG0", "ARG1", "NOUN", 16)
    assert np.argwhere(found["linked_CAE"]).tolist() == [[1, 0, 0], [1, 0, 1]]


def test_only_the_first_words_and_phrases_count(tmp_path: Path) -> None:
    """Oracle: the rules written down here, on phrases of which some begin or end beyond the thirtieth word."""
    caption = " ".join(f"w{number}" for number in range(40))
    nodes, edges = {"ROOT": {"role": "ROOT", "spans": list(range(40))}}, []
    rng = np.random.default_rng(0)
    for number in range(8):
        begin = int(rng.integers(0, 38))
        nodes[f"v{number}"] = {"role": "V", "spans": [begin, begin + 1]}
        begin = int(rng.integers(0, 36))
        nodes[f"n{number}"] = {"role": "ARG1", "spans": [begin, begin + 1, begin + 3]}
        edges += [[f"v{number}", f"n{other}", "ARG1"] for other in range(8) if (number + other) % 3 == 0]
    nodes["v2"]["spans"], nodes["n1"]["spans"] = [33, 34], [28, 29, 31]
    graphs = read(tmp_path, {caption: [nodes, edges]})
    table = RoleGraphTable.build([caption], graphs)
    kept = {
        kind: [name for name in nodes if name[0] == kind and min(nodes[name]["spans"]) < LONGEST][:most]
        for kind, most in (("v", ACTIONS), ("n", ENTITIES))
    }
    for kind, words_PL in (("v", table.actions_CAL[0]), ("n", table.entities_CEL[0])):
        for place, name in enumerate(kept[kind]):
            assert np.flatnonzero(words_PL[place]).tolist() == [w for w in nodes[name]["spans"] if w < LONGEST]
    linked = {(kept["v"][a], kept["n"][e]) for _, a, e in np.argwhere(table.linked_CAE)}
    assert linked == {(v, n) for v, n, _ in edges if v in kept["v"] and n in kept["n"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "the top level is a list"),
        ({"a": {}}, "caption 'a': {} where"),
        ({"a": [{}, [], 3]}, "where .phrases by name, links. are needed"),
        ({"a": [{"1": {"role": "V"}}, []]}, "phrase '1': .* where a role and spans"),
        ({"a": [{"1": {"role": "V", "spans": []}}, []]}, "where a role and spans"),
        ({"a": [{"1": {"role": "V", "spans": [-1]}}, []]}, "where a role and spans"),
        ({"a": [{"1": {"role": "V", "spans": [True]}}, []]}, "where a role and spans"),
        ({"a": [{"1": {"role": 4, "spans": [0]}}, []]}, "where a role and spans"),
        ({"a": [{}, [["1"]]]}, "where .action, entity, role. are needed"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(RoleGraphError, match=message) as caught:
        RoleGraphTable.build(["a"], read(tmp_path, content))
    assert "sent2rolegraph" in str(caught.value)


def test_what_is_missing_says_where_role_graphs_come_from(tmp_path: Path) -> None:
    with pytest.raises(RoleGraphError, match=r"(?s)No such file.*semantic role labelling.*no parser ships here"):
        read_role_graphs(tmp_path / "gone.json")
    path = written(tmp_path, {})
    path.write_text("{")
    with pytest.raises(RoleGraphError, match="is not a JSON file"):
        read_role_graphs(path)
    with pytest.raises(
        RoleGraphError, match=r"1 of 2 captions have no role graph, the first is 'a dog'; HGR's release"
    ):
        RoleGraphTable.build([CAPTION, "a dog"], read(tmp_path, {CAPTION: [NODES, EDGES]}))


@pytest.mark.parametrize("caption", ["a man fries", " "])
def test_graphs_of_other_captions_are_refused(tmp_path: Path, caption: str) -> None:
    graphs = read(tmp_path, {caption: [NODES, EDGES]})
    with pytest.raises(RoleGraphError, match="cut at spaces, do not fit its role graph"):
        RoleGraphTable.build([caption], graphs)

"""Records that carry their own digest, and the lists of digests that earlier versions wrote."""

import json
from pathlib import Path
from typing import Any

import pytest

from vse_core.digests import (
    DIGESTS,
    DamageError,
    DigestError,
    check_digests,
    damage_named,
    file_digest,
    sealed,
    unsealed,
)

RECORD = {"metrics": {"rsum": 221.5}, "history": [1, 2.25, None], "text": "\u00e9", 7: "a number as a key"}
PATH = Path("record.json")


def test_a_record_is_given_back_as_json_has_it() -> None:
    written = json.loads(json.dumps(sealed(RECORD)))
    assert unsealed(written, PATH) == {str(key): value for key, value in RECORD.items()}
    assert unsealed({"metrics": 1}, PATH) == {"metrics": 1}  # of format 1


def changes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values in a record."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in changes(inner, (*path, key)))]


def test_no_value_of_a_record_can_be_changed_or_left_out() -> None:
    for *parents, last in changes(json.loads(json.dumps(sealed(RECORD))))[1:]:
        for remove in (True, False):
            record = holder = json.loads(json.dumps(sealed(RECORD)))
            for key in parents:
                holder = holder[key]
            if remove:
                del holder[last]
            else:
                holder[last] = 521.5 if last != "format" else 1
            with pytest.raises(DigestError, match=r"record\.json was changed after it was written"):
                unsealed(record, PATH)


@pytest.mark.parametrize("record", [[], None, {"format": "2"}])
def test_what_is_not_a_record_is_told(record: Any) -> None:
    with pytest.raises(DigestError, match="not a record"):
        unsealed(record, PATH)


def test_a_list_of_the_format_before_is_read(tmp_path: Path) -> None:
    """It held the digests alone; what it does not list, or an empty one, is an error as before."""
    (tmp_path / "weights").write_text("w")
    (tmp_path / DIGESTS).write_text(json.dumps({"weights": file_digest(tmp_path / "weights")}))
    check_digests(tmp_path, "weights")
    with pytest.raises(DigestError, match="has no digest of words"):
        check_digests(tmp_path, "words")
    (tmp_path / DIGESTS).write_text("{}")
    with pytest.raises(DigestError, match="not a list of one digest or more"):
        check_digests(tmp_path)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")])
def test_memory_that_runs_out_is_not_called_damage(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, damage_named(Path("model.safetensors")):
        raise error
    assert caught.value is error
    with (
        pytest.raises(DamageError, match=r"model\.safetensors is damaged \(x\)"),
        damage_named(Path("model.safetensors")),
    ):
        raise RuntimeError("x")

"""Names from outside: those that stay in their folder, and all the ways out of it."""

import re

import pytest

from preprocessing.storage import StorageError
from preprocessing.storage.names import require_inner_name


@pytest.mark.parametrize("name", ["a", "a/b.jpg", "./a", "a//b", "..a", "a..", "a/...", "ab:c", "é ?#*", ".hidden"])
def test_names_that_stay(name: str) -> None:
    assert require_inner_name(name, "a list", StorageError) == name


@pytest.mark.parametrize(
    "name",
    ["..", "../a", "a/../b", "a/..", "/a", "//a/b", "C:/a", "c:a", "C:\\a", "\\\\host\\a", "..\\a", "a\\..\\b", "a\0.jpg"],
)
def test_ways_out_of_a_folder(name: str) -> None:
    with pytest.raises(StorageError, match=rf"^a list, entry 3: the name {re.escape(repr(name))} is not a path inside its"):
        require_inner_name(name, "a list, entry 3", StorageError)


@pytest.mark.parametrize("name", ["", ".", None, 3, ["a"], b"a"])
def test_what_is_no_name(name: object) -> None:
    with pytest.raises(ValueError, match="is no name of a file"):
        require_inner_name(name, "a list", ValueError)

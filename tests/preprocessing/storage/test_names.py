"""Names from outside: those that stay in their folder, and all the ways out of it."""

import re

import pytest

from preprocessing.storage.address import require_inner_name
from preprocessing.storage.base import StorageError


@pytest.mark.parametrize("name", ["a", "a/b.jpg", "./a", "a//b", "..a", "a..", "a/...", "ab:c", "é ?#*", ".hidden"])
def test_names_that_stay(name: str) -> None:
    assert require_inner_name(name, "a list", StorageError) == name


OUTSIDE = "..", "../a", "a/../b", "a/..", "/a", "//a/b", "C:/a", "c:a", "C:\\a", "\\\\host\\a", "..\\a", "a\0.jpg"


@pytest.mark.parametrize("name", OUTSIDE)
def test_ways_out_of_a_folder(name: str) -> None:
    message = f"a list, entry 3: the name {name!r} is not a path inside its folder"
    with pytest.raises(StorageError, match=f"^{re.escape(message)}"):
        require_inner_name(name, "a list, entry 3", StorageError)


@pytest.mark.parametrize("name", ["", ".", None, 3, ["a"], b"a"])
def test_what_is_no_name(name: object) -> None:
    with pytest.raises(ValueError, match="is not the name of a file"):
        require_inner_name(name, "a list", ValueError)

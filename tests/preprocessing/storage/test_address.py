"""Addresses: local paths and s3://, joined and taken apart."""

import pytest

from preprocessing.storage.address import common_folder, is_s3, join, relative, split_s3


@pytest.mark.parametrize(
    ("address", "parts"),
    [("s3://b/a/c.jpg", ("b", "a/c.jpg")), ("s3://b", ("b", "")), ("s3://b/a/", ("b", "a")), ("s3://b//a", ("b", "a"))],
)
def test_bucket_and_key(address: str, parts: tuple[str, str]) -> None:
    assert split_s3(address) == parts


@pytest.mark.parametrize("address", ["s3://", "s3:///a", "/a/b", "http://b/a"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="write s3://BUCKET/FOLDER"):
        split_s3(address)


def test_local_paths_are_those_of_the_system() -> None:
    assert not is_s3("/data/images")
    assert join("/data/images", "a/b.jpg") == "/data/images/a/b.jpg"
    assert relative("/data/other/b.jpg", "/data/images") == "../other/b.jpg"
    assert common_folder(["/data/images/train", "/data/images/val"]) == "/data/images"


def test_s3() -> None:
    assert is_s3("s3://b/images")
    assert join("s3://b/images/", "a/b c.jpg") == "s3://b/images/a/b c.jpg"
    assert relative("s3://b/images/a/b c.jpg", "s3://b/images") == "a/b c.jpg"
    assert common_folder(["s3://b/coco/train", "s3://b/coco/val"]) == "s3://b/coco"
    with pytest.raises(ValueError, match="does not lie in"):
        relative("s3://b/images2/a.jpg", "s3://b/images")


@pytest.mark.parametrize("folders", [["s3://a/x", "s3://b/x"], ["s3://a/x", "/a/x"]])
def test_folders_with_nothing_in_common(folders: list[str]) -> None:
    with pytest.raises(ValueError, match="put them into one bucket"):
        common_folder(folders)

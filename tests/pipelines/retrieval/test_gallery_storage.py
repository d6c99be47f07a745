"""Galleries on a storage: two machines, each with a work directory of its own, and a folder that both see."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from pipelines.retrieval import gallery_storage, image_gallery
from pipelines.retrieval import search as search_command
from pipelines.retrieval.gallery_storage import STATE
from pipelines.retrieval.options import gallery_folder
from pipelines.runtime.lock import exclusive
from pipelines.schema.fields import default_mirror
from pipelines.serving.replica import SearchReplica
from pipelines.serving.request_error import RequestError
from pipelines.serving.rollout import find_served
from preprocessing.features.images import load_image
from preprocessing.storage.base import StorageError
from preprocessing.storage.mirror import Mirror
from tests.pipelines.retrieval.test_index_images import bundle, embedded, holiday, ids, index, photos  # noqa: F401

# ruff: noqa: F811 (fixtures that are imported)
Use = Callable[[str], Path]


@pytest.fixture
def use(bundle: Path, photos: Path, embedded: list[str], monkeypatch: pytest.MonkeyPatch) -> Use:
    """Return what changes to a machine, and returns its folder of the gallery, which the first machine has made."""

    def change_to(name: str) -> Path:
        monkeypatch.setenv("VSE_WORK_DIR", str(photos.with_name(name)))
        return gallery_folder("holiday")

    monkeypatch.setenv("VSE_STORAGE", str(photos.with_name("storage")))
    change_to("first")
    assert index("--model", str(bundle), "--images", str(photos)) == 0
    embedded.clear()
    return change_to


def test_what_is_like_an_image_needs_neither_the_image_nor_the_version_that_an_update_has_replaced(
    use: Use, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use("first")
    expected_BKD = holiday().embed([str(photos / name) for name in ids(holiday())], "image")
    monkeypatch.setattr(image_gallery, "_GROUP", 2)
    assert index("--compress", "int8") == 0
    photos.rename(photos.with_name("away"))
    second = use("second")
    model = holiday()
    photos.with_name("away").rename(photos)
    assert index("--compress", "float16") == 0
    photos.rename(photos.with_name("away"))
    assert len(list(second.glob("0*"))) == 1
    for image in range(3):
        torch.testing.assert_close(model.embed_own(image), expected_BKD[[image]])


def change(photos: Path) -> None:
    load_image("scene://0/7").save(photos / "new.png")
    (photos / "a.jpg").unlink()


def files(folder: Path) -> dict[str, bytes]:
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if not name.endswith("contents.json")}


def test_a_second_machine_searches_shows_and_updates_it(
    use: Use, photos: Path, embedded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    first, before = use("first"), holiday().answer("a red ring", "text", 9, "images").hits
    served = find_served(str(first), "unused")
    photos.rename(photos.with_name("away"))
    second = use("second")
    assert holiday().answer("a red ring", "text", 9, "images").hits == before
    assert not list(second.glob("thumbnails/*")), "a search by text needs none"
    replica = SearchReplica(str(second), "unused")
    shown = replica._model.thumbnails["b.png"].relative_to(second)
    assert replica._image("b.png") == (first / shown).read_bytes()
    with pytest.raises(RequestError, match="cannot be read on this machine; this is the gallery's thumbnail of it"):
        replica._image("b.png", is_full=True)
    photos.with_name("away").rename(photos)
    torch.testing.assert_close(holiday().embed_own(1), holiday().embed([str(photos / "b.png")], "image"))

    change(photos)
    assert index() == 0
    assert embedded == ["new.png"]
    stored = files(photos.with_name("storage") / "galleries" / "holiday")
    assert files(second).items() <= stored.items()
    assert sorted(name.partition("/")[0][:4] for name in stored) == [*["0000"] * 5, "gall", "skip", *["thum"] * 4]
    use("first")
    assert find_served(str(first), "unused") != served
    assert ids(holiday()) == ["b.png", "inner/c.png", "new.png"]
    assert files(first).items() <= stored.items(), "with the thumbnail of the image that has just gone"

    away = photos.with_name("away")
    photos.with_name("storage").rename(away)
    for is_mount_point in (False, True):
        if is_mount_point:
            photos.with_name("storage").mkdir()
        assert index("--dry-run") == 1
        assert "storage: the folder is not there, or has no galleries: is it mounted?" in capsys.readouterr().err
    photos.with_name("storage").rmdir()
    away.rename(photos.with_name("storage"))

    use("second")
    assert index("--delete") == 0
    use("first")
    assert index() == 1
    assert "has no gallery 'holiday' any more: if another machine has deleted it, delete" in capsys.readouterr().err
    assert index("--delete") == 0
    assert not first.exists()
    assert not files(photos.with_name("storage") / "galleries")


def test_a_gallery_of_a_later_version_on_the_storage_is_refused_with_what_to_do(
    use: Use, photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use("first")
    stored = photos.with_name("storage") / "galleries" / "holiday" / STATE
    stored.write_text(json.dumps({**json.loads(stored.read_text()), "format": 99}))
    use("second")
    with pytest.raises(SystemExit):
        search_command.main(["--gallery", "holiday", "a red ring"])
    assert "update this program" in capsys.readouterr().err


def test_a_version_that_is_replaced_while_it_is_copied(use: Use, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pull = Mirror.pull_folder

    def replaced(mirror: Mirror, directory: Path) -> None:
        monkeypatch.setattr(Mirror, "pull_folder", pull)
        use("first")
        change(photos)
        assert index() == 0
        use("second")
        mirror.pull_folder(directory)

    use("second")
    monkeypatch.setattr(Mirror, "pull_folder", replaced)
    assert ids(holiday()) == ["b.png", "inner/c.png", "new.png"]


def test_an_update_that_is_killed_before_its_end_changes_nothing_and_embeds_nothing_again(
    use: Use, photos: Path, embedded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(photos)
    with monkeypatch.context() as lost:
        lost.setattr(gallery_storage, "open_storage", Mock(side_effect=StorageError("the storage does not answer")))
        assert index() == 1
    use("second")
    assert ids(holiday()) == ["a.jpg", "b.png", "inner/c.png"]
    with exclusive(default_mirror(), gallery_folder("holiday")):
        use("first")
        assert index() == 75, "one machine at a time"
    assert index() == 0
    use("second")
    assert ids(holiday()) == ["b.png", "inner/c.png", "new.png"]
    assert embedded == ["new.png"]


def test_a_gallery_of_before_is_taken_up_and_another_one_of_its_name_refused(
    use: Use,
    bundle: Path,
    photos: Path,
    embedded: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = use("before")
    monkeypatch.setenv("VSE_STORAGE", "")
    assert index("--model", str(bundle), "--images", str(photos)) == 0
    (made,) = before.glob("0*")
    made.rename(before / "000001")  # as an earlier release called it, with no storage in its record
    state = gallery_storage.content_of((before / "gallery.json").read_bytes(), before)
    gallery_storage.write_state(
        before, {key: state[key] for key in ("model", "images", "origin")} | {"current": "000001"}
    )
    kept = files(before)
    embedded.clear()
    monkeypatch.setenv("VSE_STORAGE", str(photos.with_name("storage")))
    assert index() == 1
    assert "was indexed without this storage, and" in capsys.readouterr().err
    assert files(before) == kept
    shutil.rmtree(photos.with_name("storage"))
    assert index() == 0
    assert not embedded
    use("new")
    assert ids(holiday()) == ["a.jpg", "b.png", "inner/c.png"]
    monkeypatch.setenv("VSE_STORAGE", "gs://bucket")
    assert index() == 1
    assert "VSE_STORAGE is not an address: write the path of a folder, or s3://" in capsys.readouterr().err
    monkeypatch.setenv("VSE_STORAGE", str(photos / "b.png"))
    assert index() == 1
    assert "b.png is a file: name a folder" in capsys.readouterr().err

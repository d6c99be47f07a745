"""The marks of a service, where `vse prune` looks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.registry.in_use import folder_of_marks, in_use, versions_in_use

SERVER = "http://mlflow:5000"


def test_a_mark_is_next_to_the_database_whatever_the_environment_of_the_service_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VSE_WORK_DIR", str(tmp_path / "another"))
    for version in (2, 3):
        with in_use(f"shop/{version}", f"sqlite:///{tmp_path / 'mlflow.db'}"):
            assert list(versions_in_use("shop", tmp_path)) == [version]
    assert list(versions_in_use("shop", tmp_path)) == []


def test_with_a_server_a_mark_is_in_the_default_work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSE_WORK_DIR", str(tmp_path))
    with in_use("shop/2", SERVER):
        assert list(versions_in_use("shop", folder_of_marks(SERVER))) == [2]


@pytest.mark.parametrize("defect", ["missing", "not writable"])
def test_what_cannot_be_marked_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, defect: str
) -> None:
    work_dir = tmp_path / "work"
    if defect == "not writable":  # also to the superuser
        work_dir.mkdir()
        (work_dir / "locks").touch()
    monkeypatch.setenv("VSE_WORK_DIR", str(work_dir))
    with in_use("shop/2", SERVER), in_use(str(tmp_path / "bundle"), SERVER):
        assert f"shop/2 is not protected from `vse prune`, as {work_dir} cannot be written to" in caplog.text
    assert len(caplog.records) == 1
    assert work_dir.exists() == (defect == "not writable")

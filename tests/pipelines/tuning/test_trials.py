"""What a search does with trials that fail; the trials themselves are those of the integration tests."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from pipelines.runtime.stage import NoRoomError, StageError, disk_errors
from pipelines.tuning import trials


def no_space() -> None:
    raise OSError(28, "No space left on device")


def test_a_trial_that_has_found_no_room_is_asked_again(tmp_path: Path) -> None:
    """The state of the search goes, and with it what would be taken for the outcome of a setting."""
    (tmp_path / "trials").mkdir()
    failed = SimpleNamespace(metrics={"problem": "the loss is nan", "no_room": False})
    trials._require_room([failed, SimpleNamespace(metrics=None)], tmp_path)
    assert (tmp_path / "trials").is_dir()
    full = SimpleNamespace(metrics={"problem": "cannot write to /work", "no_room": True})
    with pytest.raises(NoRoomError, match="1 trials are not finished; the first says: cannot write to /work"):
        trials._require_room([failed, full], tmp_path)
    assert not (tmp_path / "trials").exists()


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_full_disk_is_told_from_other_failures(
    is_ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def training(*_: object) -> None:
        if not is_ours:
            no_space()
        with disk_errors("train", tmp_path):
            no_space()

    monkeypatch.setattr(trials, "train_as_process", training)
    with pytest.raises(NoRoomError, match="No space left"):
        trials._fit_here(None, None, 1, print)  # type: ignore[arg-type]

    def collapsed(*_: object) -> None:
        raise StageError("the loss is nan")

    monkeypatch.setattr(trials, "train_as_process", collapsed)
    with pytest.raises(StageError, match="nan") as caught:
        trials._fit_here(None, None, 1, print)  # type: ignore[arg-type]
    assert not isinstance(caught.value, NoRoomError)

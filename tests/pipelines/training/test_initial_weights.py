"""The model that a training begins with: kept with the run, on every machine, and fitted to its words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.config import load_config
from pipelines.runtime.stage import StageError
from pipelines.stages.runner import plan_stages
from pipelines.training.initial_weights import INITIAL, keep_initial, start_from_initial
from pipelines.training.run_folder import RunFolder
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.storage.mirror import Mirror
from vse_core.digests import DIGESTS, DigestError
from vse_core.models import build_model

SPECIFICATION: dict[str, Any] = {
    "feature_dim": 6,
    "embed_dim": 8,
    "image": {"pooling": {"name": "mean"}},
    "text": {"pooling": {"name": "mean"}, "word_dim": 5},
}


def vocabulary(*words: str) -> Vocabulary:
    return Vocabulary.build([" ".join(words)], min_count=1)


def saved(directory: Path, words: Vocabulary, **changes: Any) -> Path:
    directory.mkdir(parents=True)
    specification = {**SPECIFICATION, "vocabulary_size": len(words), **changes}
    torch.manual_seed(5)
    build_model(**specification).save(directory)
    words.save(directory / words.FILE)
    return directory


def test_words_are_matched_by_their_spelling(tmp_path: Path) -> None:
    old, new = vocabulary("dog", "runs", "sand"), vocabulary("beach", "dog", "runs", "zebra")
    keep_initial(saved(tmp_path / "champion", old), tmp_path, Mirror(tmp_path))
    torch.manual_seed(5)
    champion = build_model(**SPECIFICATION, vocabulary_size=len(old))
    model = build_model(**SPECIFICATION, vocabulary_size=len(new))
    before = model.state_dict()["text_encoder.embed.weight"].clone()
    start_from_initial(model, new, tmp_path)
    after, weights = (each.state_dict()["text_encoder.embed.weight"] for each in (model, champion))
    for word in ("<pad>", "<start>", "<end>", "<unk>", "<mask>", "dog", "runs"):
        assert torch.equal(after[new.find(word)], weights[old.find(word)]), word
    for word in ("beach", "zebra"):
        assert torch.equal(after[new.find(word)], before[new.find(word)]), word


def test_a_model_of_an_earlier_format_is_refused_before_any_worker_starts(tmp_path: Path) -> None:
    champion = saved(tmp_path / "champion", vocabulary("dog"))
    (champion / DIGESTS).unlink()
    with pytest.raises(
        DigestError, match=r"champion has format 0, of an earlier version .* make it again: the command full"
    ):
        keep_initial(champion, tmp_path, Mirror(tmp_path))


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    words = vocabulary("dog")
    keep_initial(saved(tmp_path / "champion", words, embed_dim=16), tmp_path, Mirror(tmp_path))
    with pytest.raises(StageError, match=r"training\.initial is not a model to start this one from.*do not fit"):
        start_from_initial(build_model(**SPECIFICATION, vocabulary_size=len(words)), words, tmp_path)


def test_every_machine_has_it(tmp_path: Path) -> None:
    here, there = (Mirror(tmp_path / name, str(tmp_path / "storage")) for name in ("here", "there"))
    model = saved(tmp_path / "champion", vocabulary("dog"))
    (here.root / "train").mkdir(parents=True)
    keep_initial(model, here.root / "train", here)
    (there.root / "train").mkdir(parents=True)
    RunFolder(there.root / "train", there).recover()
    kept = there.root / "train" / INITIAL
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == {
        path.name: path.read_bytes() for path in model.iterdir()
    }


def test_the_run_is_identified_by_what_it_begins_with(tmp_path: Path) -> None:
    settings = [f"work_dir={tmp_path / 'work'}", "dataset.images={train: 20, dev: 4}", "training.batch_size=4"]
    first = saved(tmp_path / "first", vocabulary("dog"))
    copy = saved(tmp_path / "copy", vocabulary("dog"))
    other = saved(tmp_path / "other", vocabulary("cat"))
    found = {
        path: plan_stages(load_config(None, [*settings, f"training.initial={path}"]), last="train")["train"].fingerprint
        for path in ("null", first, copy, other)
    }
    assert found[first] == found[copy]
    assert len(set(found.values())) == 3
    assert found["null"] == plan_stages(load_config(None, settings), last="train")["train"].fingerprint

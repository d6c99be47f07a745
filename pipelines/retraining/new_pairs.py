"""The audit of the pairs that came new, by the champion, before a retraining trains on them.

In the retraining's folder of the journal: audit.json, its counts; misfits.csv and misfits.html, the pairs that fit
badly; left_out.csv, those that are left out from now on, with those of earlier retrainings; not_trained_on.csv, these
and those of `training.leave_out`; and the hashes of its captions.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.config import PipelineConfig
from pipelines.retraining.journal import AUDIT, Journal
from pipelines.runtime.cli import say
from pipelines.runtime.stage import StageError
from pipelines.stages.on_worker import on_worker
from pipelines.tracking import Tracker
from pipelines.training.left_out import Pair, captions_of, left_out_pairs, named_pairs, write_pairs
from pipelines.training.readers import split_reader
from preprocessing.extraction.split_hashes import DataManifest

LEFT_OUT, NOT_TRAINED_ON = "left_out.csv", "not_trained_on.csv"
# A share of fewer new pairs says little.
_FEWEST = 100


@dataclass(frozen=True)
class NewPairs:
    """The captions of a retraining, next to those of the `last` one, of which `changed` are the new or other images.

    `shards` are the directories of the splits.
    """

    config: PipelineConfig
    journal: Journal
    identity: str
    last: Mapping[str, Any] | None
    shards: Mapping[str, Path]
    changed: Set[str] = frozenset()

    def keep(self) -> None:
        """Keep the hashes of the captions, which the next retraining's are compared with."""
        captions = DataManifest.of_captions(captions_of(split_reader(self.config.mirror, *self._train)))
        self.journal.keep_data(self.identity, self._kept, captions)

    def audit(self, champion: int, tracker: Tracker) -> dict[str, Any]:
        """Return the counts of the new pairs, which the first start of a retraining takes, with a summary; log them.

        Raises StageError if more of them fit badly than `retrain.audit_limit` allows, or the champion cannot read them.
        """
        from pipelines.evaluation.audit import SHEET, TABLE, counted_misfits  # torch, which planning does without

        limit = self.config.retrain.audit_limit
        counts = self.journal.once(self.identity, AUDIT, lambda: self._judged(champion), self._is_current)
        tracker.log_metrics({f"retrain/audit_{name}": counts[name] for name in ("pairs", "misfits", "misfit_images")})
        for name in (TABLE, SHEET):
            if (file := self.journal.file(self.identity, name)) is not None:
                tracker.log_artifact(file, "audit")
        summary = f"of what came new, {counted_misfits(counts)}" if counts["pairs"] else "no new captions"
        say(f"audit by version {counts['champion']}: {summary}")
        if counts["pairs"] >= _FEWEST and counts["misfits"] > limit * counts["pairs"]:
            raise StageError(
                f"{summary}, more than retrain.audit_limit ({limit:.0%}): look at "
                f"{self.journal.of(self.identity) / SHEET}; correct the data, or raise the limit"
            )
        return {**counts, "summary": summary}

    def left_out(self) -> Path | None:
        """Write the pairs that training leaves out, and return their file; None if there are none.

        They are those of `training.leave_out`, the last retraining's that are still there and not new, and new misfits.
        Only the last two are remembered: the first are what the user names each time. Unless `retrain.audit` is
        `leave_out`, training leaves out the first alone. StageError if their file belongs to other data.
        """
        from pipelines.evaluation.audit import TABLE

        leaves_out = self.config.retrain.audit == "leave_out"
        found = self.journal.file(self.identity, TABLE) if leaves_out else None
        remembered = (self._left_out_before | self._named(found)) & set(self._is_new)
        own, folder = self._own, self.journal.of(self.identity)
        folder.mkdir(parents=True, exist_ok=True)
        # Also without any: an earlier start with other settings may have left some out.
        write_pairs(folder / LEFT_OUT, sorted(remembered))
        self.journal.keep_files(self.identity, LEFT_OUT)
        if not remembered or not leaves_out:
            return self.config.training.leave_out
        write_pairs(folder / NOT_TRAINED_ON, sorted(remembered | own))
        self.journal.keep_files(self.identity, NOT_TRAINED_ON)
        return folder / NOT_TRAINED_ON

    def _judged(self, champion: int) -> dict[str, Any]:
        from pipelines.evaluation.audit import SHEET, TABLE, judged_pairs, write_misfits
        from pipelines.evaluation.named_models import NamedModel

        metas = enumerate(split_reader(self.config.mirror, *self._train).metas())
        new = {image for image, _ in self._new}
        images = [number for number, meta in metas if meta["image_id"] in new]
        pairs = []
        if images:
            named = NamedModel.find(f"{self.config.registered_model}/{champion}", self.config)
            of_these = named, self.config.retrain.audit_loss, images, self._left_out_before | self._own, self.changed
            judged = on_worker(self.config, judged_pairs, self.config, self.shards, *of_these)
            pairs = [pair for pair in judged if pair.ids in self._new]
        folder = self.journal.of(self.identity)
        folder.mkdir(parents=True, exist_ok=True)
        found = write_misfits(pairs, folder, "New images with captions that fit badly")
        counts = {**found, "champion": champion, **self._asked}
        self.journal.keep_files(self.identity, TABLE, SHEET)
        return counts

    def _is_current(self, record: Mapping[str, Any]) -> bool:
        """Return whether an audit answers what is asked now; one of an earlier release says less."""
        return all(record.get(name, value) == value for name, value in self._asked.items())

    def _named(self, file: Path | None) -> set[Pair]:
        return set() if file is None else named_pairs(file, split_reader(self.config.mirror, *self._train))

    @cached_property
    def _own(self) -> set[Pair]:
        """The captions of `training.leave_out`."""
        return left_out_pairs(self.config.training.leave_out, split_reader(self.config.mirror, *self._train))

    @property
    def _asked(self) -> dict[str, Any]:
        """What an audit depends on besides the champion: the data may be again what it was before the last one."""
        return {"loss": self.config.retrain.audit_loss, "since": None if self.last is None else self.last["identity"]}

    @property
    def _train(self) -> tuple[Path, str]:
        return self.shards[self.config.dataset.train_split], self.config.features.member

    @property
    def _kept(self) -> str:
        return f"{self.config.dataset.train_split}.captions"

    @cached_property
    def _is_new(self) -> dict[Pair, bool]:
        """Whether the last retraining lacked each caption of the training split, or had another image for it."""
        before = None
        if self.last is not None:
            identity, split = self.last["identity"], self.config.dataset.train_split
            # An earlier release kept those of the data set, of which a split in archives has none.
            before = self.journal.data(identity, self._kept) or self.journal.data(identity, split)
        return {
            (image, caption): before is None or image in self.changed or not before.has_caption(image, caption, text)
            for image, caption, text in captions_of(split_reader(self.config.mirror, *self._train))
        }

    @cached_property
    def _left_out_before(self) -> set[Pair]:
        """What the last retraining remembered, but what is new."""
        before = self.journal.file(self.last["identity"], LEFT_OUT) if self.last is not None else None
        return {pair for pair in self._named(before) if not self._is_new.get(pair)}

    @cached_property
    def _new(self) -> set[Pair]:
        """The new captions, but those of `training.leave_out`, which nobody has to judge."""
        return {pair for pair, is_new in self._is_new.items() if is_new} - self._own

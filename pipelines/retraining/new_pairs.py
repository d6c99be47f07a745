"""The audit of the pairs that came new, by the champion, before a retraining trains on them.

In the retraining's folder of the journal: audit.json, its counts; misfits.csv and misfits.html, the pairs that fit
badly; left_out.csv, those that training leaves out, with those of earlier retrainings; and the hashes of its captions.
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
from pipelines.training.left_out import Pair, captions_of, named_pairs, write_pairs
from pipelines.training.readers import captions_reader
from preprocessing.extraction.split_hashes import DataManifest

LEFT_OUT = "left_out.csv"
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
        captions = DataManifest.of_captions(captions_of(captions_reader(self.config.mirror, *self._train)))
        self.journal.keep_data(self.identity, self._kept, captions)

    def audit(self, champion: int, tracker: Tracker) -> dict[str, Any]:
        """Return the counts of the new pairs, which the first start of a retraining takes, with a summary; log them.

        Raises StageError if more of them fit badly than `retrain.audit_limit` allows, or the champion cannot read them.
        """
        from pipelines.evaluation.audit import SHEET, TABLE, counted_misfits  # torch, which planning does without

        limit, loss = self.config.retrain.audit_limit, self.config.retrain.audit_loss
        counts = self.journal.once(
            self.identity, AUDIT, lambda: self._judged(champion), lambda record: record.get("loss", loss) == loss
        )
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
        Unless `retrain.audit` is `leave_out`, training leaves out the first alone, and the last are kept for later.
        """
        from pipelines.evaluation.audit import TABLE

        before = self.journal.file(self.last["identity"], LEFT_OUT) if self.last is not None else None
        leaves_out = self.config.retrain.audit == "leave_out"
        found = self.journal.file(self.identity, TABLE) if leaves_out else None
        files = (before, self.config.training.leave_out, found)
        reader = captions_reader(self.config.mirror, *self._train)
        named = [named_pairs(file, reader) if file is not None else set() for file in files]
        chosen = ((named[0] - self._new) | named[1] | named[2]) & set(self._is_new)
        if not chosen:
            return None
        file = self.journal.of(self.identity) / LEFT_OUT
        file.parent.mkdir(parents=True, exist_ok=True)
        write_pairs(file, sorted(chosen))
        self.journal.keep_files(self.identity, LEFT_OUT)
        return file if leaves_out else self.config.training.leave_out

    def _judged(self, champion: int) -> dict[str, Any]:
        from pipelines.evaluation.audit import SHEET, TABLE, judged_pairs, write_misfits
        from pipelines.evaluation.named_models import NamedModel

        metas = enumerate(captions_reader(self.config.mirror, *self._train).metas())
        new = {image for image, _ in self._new}
        images = [number for number, meta in metas if meta["image_id"] in new]
        pairs = []
        if images:
            named = NamedModel.find(f"{self.config.registered_model}/{champion}", self.config)
            loss = self.config.retrain.audit_loss
            judged = on_worker(self.config, judged_pairs, self.config, self.shards, named, loss, images, self.changed)
            pairs = [pair for pair in judged if pair.ids in self._new]
        folder = self.journal.of(self.identity)
        folder.mkdir(parents=True, exist_ok=True)
        found = write_misfits(pairs, folder, "New images with captions that fit badly")
        counts = {**found, "champion": champion, "loss": self.config.retrain.audit_loss}
        self.journal.keep_files(self.identity, TABLE, SHEET)
        return counts

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
            for image, caption, text in captions_of(captions_reader(self.config.mirror, *self._train))
        }

    @cached_property
    def _new(self) -> set[Pair]:
        """The new captions, but those of `training.leave_out`, which nobody has to judge."""
        file = self.config.training.leave_out
        new = {pair for pair, is_new in self._is_new.items() if is_new}
        return new if file is None else new - named_pairs(file)

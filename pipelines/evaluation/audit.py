"""The audit of pairs: the captions of a split that fit their image badly, by models that were not trained on them."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path

import numpy as np
import torch

from pipelines.config import PipelineConfig
from pipelines.evaluation.evaluated_model import done_once, model_digests
from pipelines.evaluation.named_models import NamedModel
from pipelines.evaluation.pairs import pair_similarities
from pipelines.inference.embedder import default_device
from pipelines.inference.feature_check import require_features
from pipelines.inference.image_inputs import misfit
from pipelines.inference.text_embedder import TextEmbedder
from pipelines.kinds import saved_kind
from pipelines.registry.models import tags_of
from pipelines.retrieval.gallery import drawn_records, records_of
from pipelines.retrieval.hits import Hit, SheetRow, contact_sheet
from pipelines.runtime.cli import say
from pipelines.runtime.stage import Plans, StageDir, StageError, StageReport, check_outputs, fingerprint, used_folders
from pipelines.stages.runner import run_stages
from pipelines.tracking import Tracker
from pipelines.training.left_out import Pair, left_out_pairs, write_pairs
from pipelines.training.readers import split_reader
from pipelines.training.trained_pairs import has_record, unseen_pairs
from preprocessing.datasets import build_dataset
from preprocessing.datasets.record import Caption, Record
from preprocessing.shards.reader import ShardReader
from vse_core.digests import file_digest
from vse_core.evaluation.pair_fit import GoodPairs
from vse_core.models import load_model

NAME = "audit"
# Raised when the same models and data would give another audit.
VERSION = 3
TABLE, SHEET = "misfits.csv", "misfits.html"
# Images of the contact sheet.
_WORST = 60


@dataclass(frozen=True, slots=True)
class AuditedPair:
    """A caption and its image; `fit` is the share of good pairs that fit at most as well (`PairFit`)."""

    record: Record
    caption: Caption
    similarity: float
    fit: float
    is_misfit: bool

    @property
    def ids(self) -> Pair:
        """The ids of the image and of the caption."""
        return self.record.image_id, self.caption.caption_id


class PairJudge:
    """Judges pairs of the training split by a model and by the evaluation split, of whose pairs it may lose a share.

    `shards` are the directories of both splits. Raises StageError if the model has no embeddings or does not fit.
    """

    def __init__(self, config: PipelineConfig, shards: Mapping[str, Path], model: Path, loss: float) -> None:
        _require_judge(config, model)
        self._texts = TextEmbedder(load_model(model, default_device()), model)
        self._dataset = config.dataset
        train, good = (
            split_reader(config.mirror, shards[split], config.features.member)
            for split in (config.dataset.train_split, config.dataset.eval_split)
        )
        if (reason := misfit(self._texts.model, train)) is not None:
            raise StageError(f"{NAME}: the model in {model} {reason}: name the configuration of its own features")
        self.reader = train
        self._good = GoodPairs(*pair_similarities(self._texts, good, range(len(good)), list(good.texts())), loss)

    def judge(self, images: Sequence[int], left_out: Set[Pair] = frozenset()) -> list[AuditedPair]:
        """Judge the pairs of some images of the training split, in their order; an image by those not `left_out`."""
        root = build_dataset(self._dataset.format, **self._dataset.options()).root
        records = list(drawn_records(records_of(self.reader, root, images), self._dataset))
        pairs = [(record, caption) for record in records for caption in record.captions]
        texts = [caption.text for _, caption in pairs]
        similarities_C, counts_B = pair_similarities(self._texts, self.reader, images, texts)
        ids = ((record.image_id, caption.caption_id) for record, caption in pairs)
        is_counted_C = torch.tensor([pair not in left_out for pair in ids])
        judged = (similarities_C, *self._good.judge(similarities_C, counts_B, is_counted_C))
        found = zip(*(values_C.tolist() for values_C in judged), strict=True)
        return [AuditedPair(*pair, *values) for pair, values in zip(pairs, found, strict=True)]


def _require_judge(config: PipelineConfig, model: Path) -> None:
    require_features(config.features.member, model)
    if not saved_kind(model).has_embeddings:
        raise StageError(f"{NAME}: {saved_kind(model).title}'s model has no embeddings to compare pairs by")


def audit_by_model(named: NamedModel, loss: float) -> StageReport:
    """Audit the pairs of the training split that a model was not trained on, once.

    Raises StageError if it was trained on all of them, or does not fit the data. What a model without a record of its
    pairs has seen is known only if it is this very data.
    """
    _require_judge(named.config, named.model)  # before features are extracted
    plans = run_stages(named.config, ["extract"])
    name, _, version = named.reference.partition("/")
    is_version = version.isdigit() and not Path(named.reference).is_dir()
    tags = tags_of(name, int(version), named.config.tracking_uri) if is_version else {}
    reader = _reader(named.config, plans["extract"].outputs)
    unseen = unseen_pairs(reader, named.model)
    is_of_these = tags.get("vse.data_fingerprint") == plans["extract"].fingerprint
    if not unseen or (is_of_these and not has_record(named.model)):
        raise StageError(
            f"{NAME}: {named.reference} was trained on these very pairs, which it fits right or wrong: name no "
            "model, and two are trained on halves of the data"
        )
    if seen := reader.num_captions - len(unseen):
        say(f"{NAME}: {seen:,} captions are not judged: {named.reference} was trained on them")
    left_out = left_out_pairs(named.config.training.leave_out, reader)
    return _audit(named.config, plans, [(named, range(len(reader)))], loss, left_out)


def audit_by_halves(config: PipelineConfig, loss: float) -> StageReport:
    """Audit the training split by two models of halves, each of which judges the other half.

    They are trained without `training.leave_out`, and not from `training.initial`, which may have seen what they judge.
    """
    if not config.kind.has_embeddings:
        raise StageError(f"{NAME}: {config.kind.title}'s models have no embeddings to compare pairs by")
    plans = run_stages(config, ["extract"])
    reader = _reader(config, plans["extract"].outputs)
    order = np.random.default_rng(config.seed).permutation(len(reader))
    left_out = left_out_pairs(config.training.leave_out, reader)
    folder = config.work_dir / NAME / "halves" / plans["extract"].fingerprint[:16]
    folder.mkdir(parents=True, exist_ok=True)
    judges: list[tuple[NamedModel, Sequence[int]]] = []
    for number in (0, 1):
        images = sorted(order[number::2].tolist())
        file = folder / f"without-{config.seed}-{number}.csv"
        own = {
            (meta["image_id"], caption["caption_id"])
            for meta in map(reader.meta, images)
            for caption in meta["captions"]
        }
        write_pairs(file, sorted(own | left_out))
        changes = {"leave_out": file, "initial": None}
        half = config.model_copy(update={"training": config.training.model_copy(update=changes)})
        trained = run_stages(half, ["extract", "parse", "train"])
        best = trained["train"].output("best")
        config.mirror.pull_folder(best)
        judges.append((NamedModel(str(best), config, best), images))
    return _audit(config, plans, judges, loss, left_out)


def write_misfits(pairs: Iterable[AuditedPair], directory: Path, title: str) -> dict[str, int]:
    """Write the table of the misfits, the worst first, and the contact sheet of the worst images; return counts.

    `misfit_images` are those of which all captions were judged, and are misfits.
    """
    pairs = list(pairs)
    misfits = sorted((pair for pair in pairs if pair.is_misfit), key=lambda pair: (pair.fit, pair.similarity))
    rows = (
        (*pair.ids, f"{pair.fit:.5f}", f"{pair.similarity:.4f}", pair.record.image_uri, pair.caption.text)
        for pair in misfits
    )
    write_pairs(directory / TABLE, rows, ("fit", "similarity", "image", "caption"))
    images = [list(group) for _, group in groupby(pairs, key=lambda pair: pair.record.image_id)]
    bad = [image for image in images if any(pair.is_misfit for pair in image)]
    worst = sorted(bad, key=_badness)[:_WORST]
    (directory / SHEET).write_bytes(contact_sheet(title, [_row(image) for image in worst]))
    return {
        "pairs": len(pairs),
        "misfits": len(misfits),
        "images": len(images),
        "misfit_images": sum(_is_judged_whole(image) and all(pair.is_misfit for pair in image) for image in images),
    }


def counted_misfits(counts: Mapping[str, int]) -> str:
    """Return the counts in words."""
    share = counts["misfits"] / max(1, counts["pairs"])
    return (
        f"{counts['misfits']:,} of {counts['pairs']:,} captions fit badly ({share:.1%}), "
        f"all captions of {counts['misfit_images']:,} of {counts['images']:,} images"
    )


def _audit(
    config: PipelineConfig,
    plans: Plans,
    judges: Sequence[tuple[NamedModel, Sequence[int]]],
    loss: float,
    left_out: Set[Pair],
) -> StageReport:
    file = config.training.leave_out
    content = {
        "version": VERSION,
        "left_out": None if file is None else file_digest(file),
        "models": [model_digests(named.model) for named, _ in judges],
        "features": plans["extract"].fingerprint,
        "reads": config.features.member,
        "loss": loss,
    }
    stage = StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)
    manifest = done_once(stage, config, _judge, config, plans, judges, loss, left_out, stage, uses=used_folders(plans))
    return StageReport(NAME, stage.path, manifest["summary"])


def _judge(
    config: PipelineConfig,
    plans: Plans,
    judges: Sequence[tuple[NamedModel, Sequence[int]]],
    loss: float,
    left_out: Set[Pair],
    stage: StageDir,
    tracker: Tracker,
) -> None:
    shards = plans["extract"].outputs
    judged = (judged_pairs(config, shards, model, loss, images, left_out) for model, images in judges)
    split, directory = config.dataset.train_split, stage.create()
    counts = write_misfits(chain.from_iterable(judged), directory, f"{split}: images with captions that fit badly")
    tracker.set_tags({"vse.models": " ".join(str(named.model) for named, _ in judges), "vse.split": split})
    tracker.log_metrics({f"{NAME}/{name}": count for name, count in counts.items()})
    for name in (TABLE, SHEET):
        tracker.log_artifact(directory / name, NAME)
    summary = f"{split}: {counted_misfits(counts)}; of good pairs {loss:.0%} would be named"
    stage.complete({"summary": summary, "counts": counts}, [TABLE, SHEET])


def judged_pairs(
    config: PipelineConfig,
    shards: Mapping[str, Path],
    named: NamedModel,
    loss: float,
    images: Sequence[int],
    left_out: Set[Pair] = frozenset(),
    changed: Set[str] = frozenset(),
) -> list[AuditedPair]:
    """Judge the pairs of some images of the training split by a model, as `PairJudge`, but those it was trained on.

    It was not trained on the images whose files have `changed` since, given by their ids. Shards are copied as they are
    needed.
    """
    for directory in shards.values():
        config.mirror.pull(directory, lambda name: not name.endswith(".tar"))
    check_outputs(*shards.values())
    model = named.at_hand()
    reader = _reader(config, shards)
    unseen = unseen_pairs(reader, model)
    to_judge = {image_id for image_id, _ in unseen} | changed
    images = [image for image in images if reader.meta(image)["image_id"] in to_judge]
    judged = PairJudge(config, shards, model, loss).judge(images, left_out) if images else []
    return [pair for pair in judged if pair.ids in unseen or pair.record.image_id in changed]


def _reader(config: PipelineConfig, shards: Mapping[str, Path]) -> ShardReader:
    return split_reader(config.mirror, shards[config.dataset.train_split], config.features.member)


def _is_judged_whole(image: Sequence[AuditedPair]) -> bool:
    """Return whether these are all captions of the image: a model may have been trained on the others."""
    return len(image) == len(image[0].record.captions)


def _badness(image: Sequence[AuditedPair]) -> tuple[float, float]:
    """Sort images by the share of their captions that fit, then by their mean similarity."""
    return sum(not pair.is_misfit for pair in image) / len(image), sum(pair.similarity for pair in image) / len(image)


def _row(image: Sequence[AuditedPair]) -> SheetRow:
    ranked = sorted(image, key=lambda pair: pair.similarity)
    hits = (
        Hit(pair.similarity, pair.caption.caption_id, caption=pair.caption.text, relevant=not pair.is_misfit)
        for pair in ranked
    )
    captions = "captions" if _is_judged_whole(image) else "judged captions"
    misfits = sum(pair.is_misfit for pair in image)
    note = f"{image[0].record.image_id}: {misfits} of {len(image)} {captions} fit badly"
    return SheetRow(tuple(hits), None, image[0].record.image_uri, note)

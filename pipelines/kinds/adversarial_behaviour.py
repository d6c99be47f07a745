"""VSE-C: wrong captions for all training captions, made from scene graphs; each image's hardest enter the loss."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
from torch import Tensor

from pipelines.kinds import LossConfig
from pipelines.kinds.adversarial import VseCLoss
from pipelines.kinds.behaviour import Behaviour
from pipelines.kinds.inputs import KindSettings, SplitData
from pipelines.kinds.scene_graphs import require_graphs, write_pools
from pipelines.kinds.words import build_caption_encoder
from pipelines.runtime.progress import progress_bar
from preprocessing.captions.adversarial.files import Adversarial, AttackReport, read_adversarials, write_adversarials
from preprocessing.captions.adversarial.lexicon import Lexicon
from preprocessing.captions.adversarial.pool import AdversarialPool
from preprocessing.captions.adversarial.vse_c import VSECAttack, vse_c_attack
from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.captions.graph_shards import read_captions
from preprocessing.captions.pools import Pools
from preprocessing.captions.relatedness import Relatedness
from preprocessing.loading.batch import Batch, pad_tokens
from preprocessing.loading.loader import CaptionInputs
from preprocessing.shards.reader import ShardReader
from vse_core.models.adversarial import AdversarialModel

ADVERSARIAL = "adversarial.jsonl"


def _prepare(
    settings: KindSettings, train: SplitData, evaluation: SplitData, run: Path
) -> tuple[CaptionEncoder, dict[str, float]]:
    caption_encoder, facts = build_caption_encoder(settings, train.reader, run)
    pools = write_pools(settings, train, run)
    assert isinstance(settings.loss, VseCLoss)
    attack = settings.loss.attack
    kinds = get_args(VSECAttack) if attack == "all" else (attack,)
    report = _write_adversarial_captions(require_graphs(train), pools, settings.seed, run / ADVERSARIAL, kinds)
    _write_tokens(run, train.reader, caption_encoder)
    facts |= {
        "adversarial_captions": report.adversarials,
        # Each attack changes every caption.
        "adversarial_attacks": report.captions,
        "adversarial_attacks_impossible": report.impossible,
    }
    return caption_encoder, facts


def _train_inputs(
    settings: KindSettings, train: SplitData, caption_encoder: CaptionEncoder, run: Path
) -> CaptionInputs:
    """Return the sampler of a batch's adversarial captions: token ids (P, L) and lengths (P,)."""
    assert isinstance(settings.loss, VseCLoss)
    pool, seed, count = AdversarialPool.load(run), settings.seed, settings.loss.adversarial_captions

    def inputs(captions_B: npt.NDArray[np.int64], epoch: int, longest: int) -> dict[str, Tensor]:
        drawn = [pool.draw(caption, epoch, seed, count) for caption in captions_B.tolist()]
        tokens_PL, lengths_P = pad_tokens(list(chain.from_iterable(drawn)), caption_encoder.pad_id)
        return {"tokens_PL": tokens_PL, "lengths_P": lengths_P}

    return inputs


def _step_inputs(loss: LossConfig, batch: Batch, step: int, steps_per_epoch: int) -> tuple[Any, ...]:
    assert isinstance(loss, VseCLoss)
    if step < loss.adversarial_after.steps(steps_per_epoch):
        return ()
    return batch.extra["tokens_PL"], batch.extra["lengths_P"]


def _write_adversarial_captions(
    graphs: Path, pools: Pools, seed: int, path: Path, kinds: Sequence[VSECAttack]
) -> AttackReport:
    """Write adversarial captions of some of VSE-C's kinds for training captions, an entry per caption and kind."""
    images = list(read_captions(graphs))
    relatedness = Relatedness.build([caption.graph for caption in captions] for captions in images)
    lexicon = Lexicon(chain.from_iterable(images), pools, relatedness)

    def attacked(kind: VSECAttack) -> Iterator[Adversarial]:
        with progress_bar(f"train: captions with a wrong {kind}", len(images), "images") as bar:
            for captions in images:
                yield from vse_c_attack([captions], kind, lexicon, seed)
                bar.update()

    return write_adversarials(path, chain.from_iterable(map(attacked, kinds)))


def _write_tokens(directory: Path, reader: ShardReader, caption_encoder: CaptionEncoder) -> None:
    """Write the token ids of the adversarial captions of every caption of a split, in its order."""
    texts: dict[tuple[str, str], list[str]] = defaultdict(list)
    for entry in read_adversarials(directory / ADVERSARIAL):
        texts[entry.image_id, entry.caption_id].extend(entry.texts)
    captions = ((meta["image_id"], caption["caption_id"]) for meta in reader.metas() for caption in meta["captions"])
    AdversarialPool.encode((texts.get(caption, []) for caption in captions), caption_encoder).save(directory)


BEHAVIOUR = Behaviour(prepare=_prepare, train_inputs=_train_inputs, trained=AdversarialModel, step_inputs=_step_inputs)

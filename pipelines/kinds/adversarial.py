"""VSE-C: two-tower models trained against wrong captions, which are made from scene graphs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from pydantic import Field

from pipelines.kinds.inputs import KindSettings, SplitData
from pipelines.kinds.kind import ModelKind
from pipelines.kinds.scene_graphs import require_graphs, write_pools
from pipelines.runtime.progress import progress_bar
from pipelines.schema.fields import DurationField, Size
from pipelines.schema.losses import HingeLoss

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor, nn

    from pipelines.kinds import LossConfig
    from preprocessing.captions.adversarial import Adversarial, AttackReport
    from preprocessing.captions.adversarial.vse_c import VSECAttack
    from preprocessing.captions.encoder import CaptionEncoder
    from preprocessing.captions.pools import Pools
    from preprocessing.loading.batch import Batch
    from preprocessing.loading.loader import CaptionInputs
    from preprocessing.shards.reader import ShardReader
    from vse_core.losses import GlobalLoss

ADVERSARIAL = "adversarial.jsonl"


class VseCLoss(HingeLoss):
    """Triplet loss, and a hinge against adversarial captions (VSE-C)."""

    name: Literal["vse_c"]
    adversarial_after: DurationField = Field(
        description="duration without wrong captions at the start (VSE-C: 1 epoch)"
    )
    adversarial_captions: Size = Field(5, description="wrong captions drawn a caption and step (VSE-C: 5)")

    @property
    def plateau_values(self) -> tuple[str, ...]:
        """The values without that of the adversarial captions, which a batch may lack."""
        return ("part/image_to_text", "part/text_to_image")

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `vse_core.losses.adversarial.AdversarialLoss` but the negatives."""
        return self.model_dump(include={"margin", "reduction", "mask_same_image"})


class AdversarialKind(ModelKind):
    """VSE-C: two towers, trained against the hardest of adversarial captions."""

    title = "VSE-C"
    loss: ClassVar[str | None] = "vse_c"
    reads_graphs: ClassVar[bool] = True

    def versions(self) -> dict[str, int]:
        """Return the version of the adversarial captions."""
        from preprocessing.captions.adversarial import VERSION

        return {"adversarials": VERSION}

    def prepare(
        self, settings: KindSettings, train: SplitData, evaluation: SplitData, directory: Path
    ) -> tuple[CaptionEncoder, dict[str, float]]:
        """Make the caption encoder, and write adversarial captions."""
        from pipelines.kinds.words import build_caption_encoder

        caption_encoder, facts = build_caption_encoder(settings, train.reader, directory)
        pools = write_pools(settings, train, directory)
        report = _write_adversarial_captions(require_graphs(train), pools, settings.seed, directory / ADVERSARIAL)
        _write_tokens(directory, train.reader, caption_encoder)
        facts |= {
            "adversarial_captions": report.adversarials,
            # Of three attacks on every caption.
            "adversarial_attacks": report.captions,
            "adversarial_attacks_impossible": sum(report.impossible.values()),
        }
        return caption_encoder, facts

    def build_loss(self, name: str, **options: Any) -> GlobalLoss:
        """Build the loss with a hinge against adversarial captions."""
        from vse_core.losses.adversarial import AdversarialLoss

        return AdversarialLoss(**options)

    def train_inputs(
        self, settings: KindSettings, train: SplitData, caption_encoder: CaptionEncoder, directory: Path
    ) -> CaptionInputs | None:
        """Return the sampler of a batch's adversarial captions: token ids (P, L) and lengths (P,)."""
        from preprocessing.captions.adversarial.pool import AdversarialPool
        from preprocessing.loading.batch import pad_tokens

        assert isinstance(settings.loss, VseCLoss)
        pool, seed, count = AdversarialPool.load(directory), settings.seed, settings.loss.adversarial_captions

        def inputs(captions_B: npt.NDArray[np.int64], epoch: int, longest: int) -> dict[str, Tensor]:
            drawn = [pool.draw(caption, epoch, seed, count) for caption in captions_B.tolist()]
            tokens_PL, lengths_P = pad_tokens(list(chain.from_iterable(drawn)), caption_encoder.pad_id)
            return {"tokens_PL": tokens_PL, "lengths_P": lengths_P}

        return inputs

    def trained(self, encoders: nn.Module) -> nn.Module:
        """Return the towers with the search for each image's hardest adversarial caption."""
        from vse_core.models import TwoTower
        from vse_core.models.adversarial import AdversarialModel
        from vse_core.training.grad_cache import ChunkedModel

        assert isinstance(encoders, TwoTower | ChunkedModel)
        return AdversarialModel(encoders)

    def step_inputs(self, loss: LossConfig, batch: Batch, step: int, steps_per_epoch: int) -> tuple[Any, ...]:
        """Return the adversarial captions of the batch; none before their time has come."""
        assert isinstance(loss, VseCLoss)
        if step < loss.adversarial_after.steps(steps_per_epoch):
            return ()
        return batch.extra["tokens_PL"], batch.extra["lengths_P"]


def _write_adversarial_captions(graphs: Path, pools: Pools, seed: int, path: Path) -> AttackReport:
    """Write adversarial captions of VSE-C's three kinds for training captions, an entry per caption and kind."""
    from preprocessing.captions.adversarial import Lexicon, vse_c_attack, write_adversarials
    from preprocessing.captions.adversarial.vse_c import VSECAttack
    from preprocessing.captions.graph_shards import read_captions
    from preprocessing.captions.relatedness import Relatedness

    images = list(read_captions(graphs))
    relatedness = Relatedness.build([caption.graph for caption in captions] for captions in images)
    lexicon = Lexicon(chain.from_iterable(images), pools, relatedness)

    def attacked(kind: VSECAttack) -> Iterator[Adversarial]:
        with progress_bar(f"train: captions with a wrong {kind}", len(images), "images") as bar:
            for captions in images:
                yield from vse_c_attack([captions], kind, lexicon, seed)
                bar.update()

    return write_adversarials(path, chain.from_iterable(map(attacked, get_args(VSECAttack))))


def _write_tokens(directory: Path, reader: ShardReader, caption_encoder: CaptionEncoder) -> None:
    """Write the tokens of the adversarial captions, which every training process maps."""
    from preprocessing.captions.adversarial.pool import AdversarialPool

    AdversarialPool.encode(_adversarial_captions(directory / ADVERSARIAL, reader), caption_encoder).save(directory)


def _adversarial_captions(path: Path, reader: ShardReader) -> Iterator[list[str]]:
    """Yield the adversarial captions of every caption of a split, in its order."""
    from preprocessing.captions.adversarial import read_adversarials

    texts: dict[tuple[str, str], list[str]] = defaultdict(list)
    for entry in read_adversarials(path):
        texts[entry.image_id, entry.caption_id].extend(entry.texts)
    for meta in reader.metas():
        for caption in meta["captions"]:
            yield texts.get((meta["image_id"], caption["caption_id"]), [])

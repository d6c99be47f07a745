"""What captions are contrasted with in training: negatives of their components, and adversarial captions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import get_args

from pipelines.config import PipelineConfig
from pipelines.config.training import UnifiedLoss
from pipelines.runtime.progress import progress_bar
from pipelines.runtime.stage import StageError
from preprocessing.captions.adversarial import (
    Adversarial,
    AttackReport,
    Lexicon,
    read_adversarials,
    vse_c_attack,
    write_adversarials,
)
from preprocessing.captions.adversarial.vse_c import VSECAttack
from preprocessing.captions.components import ComponentTable
from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.captions.graph_shards import read_captions
from preprocessing.captions.negatives import NegativeCounts, NegativeSampler, NegativesError
from preprocessing.captions.pools import Pools, PoolsError
from preprocessing.captions.relatedness import Relatedness
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.shards.reader import ShardReader

ADVERSARIAL = "adversarial.jsonl"


def negative_sampler(
    config: PipelineConfig, table: ComponentTable, vocabulary: CaptionEncoder, directory: Path
) -> NegativeSampler:
    """What draws the negatives of the training captions' components.

    Args:
        config: says how many of each kind.
        table: the components of the training captions.
        vocabulary: of the model.
        directory: of the training stage, where the pools of words are.

    Raises:
        StageError: the training captions have too few different words.
    """
    loss = config.loss
    assert isinstance(vocabulary, Vocabulary)
    assert isinstance(loss, UnifiedLoss)
    subjects, relations, objects = loss.relation_negatives
    counts = NegativeCounts(
        loss.object_negatives, loss.attribute_negatives, loss.attribute_negatives, subjects, relations, objects
    )
    try:
        return NegativeSampler(table, Pools.load(directory / Pools.FILE), vocabulary, config.seed, counts)
    except (NegativesError, PoolsError) as error:
        raise StageError(f"train: {error}") from error


def write_adversarial_texts(graphs: Path, pools: Pools, seed: int, path: Path) -> AttackReport:
    """Write adversarial captions of VSE-C's three kinds for training captions, an entry a caption and kind.

    Args:
        graphs: directory of the training captions' graphs.
        pools: of the training captions.
        seed: the captions depend on it alone.
        path: of the file.
    """
    images = list(read_captions(graphs))
    relatedness = Relatedness.build([caption.graph for caption in captions] for captions in images)
    lexicon = Lexicon(chain.from_iterable(images), pools, relatedness)

    def attacked(kind: VSECAttack) -> Iterator[Adversarial]:
        """All captions with one kind of attack, under a progress bar."""
        with progress_bar(f"train: captions with a wrong {kind}", len(images), "images") as bar:
            for captions in images:
                yield from vse_c_attack([captions], kind, lexicon, seed)
                bar.update()

    return write_adversarials(path, chain.from_iterable(map(attacked, get_args(VSECAttack))))


def adversarial_texts(path: Path, reader: ShardReader) -> Iterator[list[str]]:
    """The adversarial captions of every caption of a split, in its order.

    Args:
        path: of the file that :func:`write_adversarial_texts` has written.
        reader: the split.
    """
    texts: dict[tuple[str, str], list[str]] = defaultdict(list)
    for entry in read_adversarials(path):
        texts[entry.image_id, entry.caption_id].extend(entry.texts)
    for image in range(len(reader)):
        meta = reader.meta(image)
        for caption in meta["captions"]:
            yield texts.get((meta["image_id"], caption["caption_id"]), [])

"""The inputs of protocols that read captions: a model and a split with its parsed captions.

B images, C captions, K views, D embedding.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pipelines.inference.text_embedder import TextEmbedder
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.stage import StageError
from pipelines.schema.captions import PoolsConfig
from preprocessing.captions.adversarial.lexicon import Lexicon
from preprocessing.captions.adversarial.sentence import TokenizedCaption
from preprocessing.captions.graph_shards import read_captions
from preprocessing.captions.pools import Pools, PoolsError
from preprocessing.captions.relatedness import Relatedness
from preprocessing.shards.reader import ShardReader


@dataclass(frozen=True)
class EvaluationInputs:
    """A model and an embedded split or its first images, with the folders of its captions' graphs and training graphs.

    `detections` are the names of the objects that a data set labels in each image, if it does.
    """

    texts: TextEmbedder
    gallery: Gallery
    reader: ShardReader
    train_graphs: Path
    graphs: Path
    directory: Path
    pools: PoolsConfig
    detections: Sequence[Sequence[str]] | None

    @cached_property
    def captions(self) -> list[list[TokenizedCaption]]:
        """The parsed captions of the gallery's images, image by image."""
        return list(itertools.islice(read_captions(self.graphs), len(self.gallery.records)))

    @cached_property
    def lexicon(self) -> Lexicon:
        """The words of the training captions, and which of them are related; StageError if they are too few."""
        images = list(read_captions(self.train_graphs))
        graphs = [[caption.graph for caption in captions] for captions in images]
        try:
            pools = Pools.build((graph for of_image in graphs for graph in of_image), **self.pools.model_dump())
        except PoolsError as error:
            raise StageError(f"evaluate: {error}") from error
        return Lexicon((caption for captions in images for caption in captions), pools, Relatedness.build(graphs))

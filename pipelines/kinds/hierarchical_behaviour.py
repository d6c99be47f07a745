"""HGR: words between spaces, and the role graphs of captions from the file that came with a data set."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipelines.kinds import TextEncoderConfig
from pipelines.kinds.behaviour import Behaviour, TextInputs
from pipelines.kinds.hierarchical import RoleGraphTextEncoderConfig
from pipelines.kinds.inputs import KindSettings, SplitData
from pipelines.kinds.words import build_words
from pipelines.runtime.stage import StageError
from preprocessing.captions.encoder import CaptionEncoder
from preprocessing.captions.role_graphs import RoleGraphError, RoleGraphTable, SpacedWords, read_role_graphs
from preprocessing.loading.loader import CaptionInputs
from preprocessing.shards.split_index import map_fields, save_fields
from vse_core.digests import file_digest
from vse_core.losses.hierarchical import TextLevels, VideoLevels
from vse_core.models import Model
from vse_core.models.hierarchical import RoleGraphs


def _prepare(
    settings: KindSettings, train: SplitData, evaluation: SplitData, run: Path
) -> tuple[CaptionEncoder, dict[str, float]]:
    # Errors in the graphs are raised here, and not in every process of the training.
    for split in (train, evaluation):
        role_graph_table(settings.text, split)
    return build_words(settings, run, lambda count: SpacedWords.build(train.reader.texts(), count))


def _train_inputs(
    settings: KindSettings, train: SplitData, caption_encoder: CaptionEncoder, run: Path
) -> CaptionInputs:
    table = role_graph_table(settings.text, train)
    return lambda captions_B, epoch, longest: _tensors(table, captions_B, longest)


def _text_inputs(
    text: TextEncoderConfig, split: SplitData, caption_encoder: CaptionEncoder, model: Model
) -> TextInputs:
    table = role_graph_table(text, split)
    return lambda captions_C, longest: (RoleGraphs(**_tensors(table, captions_C, longest)),)


def _graphs_file(text: TextEncoderConfig) -> Path:
    if not isinstance(text, RoleGraphTextEncoderConfig):
        raise StageError(
            "the model reads role graphs of captions: use the configuration that it was trained with, which names them "
            "as model.text.graphs"
        )
    return text.graphs


def _tensors(table: RoleGraphTable, captions_B: npt.NDArray[np.int64], longest: int) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in table.select(captions_B, longest).items()}


# A process reads the JSON once.
_role_graphs = lru_cache(maxsize=1)(read_role_graphs)


def role_graph_table(text: TextEncoderConfig, split: SplitData) -> RoleGraphTable:
    """Return the role graphs of a split, mapped if training has written them; StageError if HGR's JSON lacks some."""
    if split.tables is not None:
        return RoleGraphTable(**map_fields(RoleGraphTable, split.tables))
    try:
        return RoleGraphTable.build(split.reader.texts(), _role_graphs(_graphs_file(text)))
    except RoleGraphError as error:
        raise StageError(f"model.text.graphs: {error}") from error


BEHAVIOUR = Behaviour(
    prepare=_prepare,
    tables_identity=lambda settings, split: {"role_graphs": file_digest(_graphs_file(settings.text))},
    write_tables=lambda settings, split, _, directory: save_fields(role_graph_table(settings.text, split), directory),
    train_inputs=_train_inputs,
    step_inputs=lambda loss, batch, step, steps_per_epoch: (RoleGraphs(**batch.extra),),
    text_inputs=_text_inputs,
    output_types=(VideoLevels, TextLevels),
)

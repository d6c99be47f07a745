"""Evaluations by name: each gives metrics, figures and files of a split."""

from collections.abc import Callable
from functools import partial

from pipelines.evaluation.protocols.attack import attack
from pipelines.evaluation.protocols.components import components
from pipelines.evaluation.protocols.crisscrossed import crisscrossed
from pipelines.evaluation.protocols.dependencies import dependencies
from pipelines.evaluation.protocols.inputs import EvaluationInputs
from pipelines.evaluation.protocols.rankings import Embedded, published_retrieval, retrieval
from pipelines.evaluation.protocols.results import Results
from pipelines.evaluation.protocols.video import video_retrieval
from vse_core.evaluation.protocols import RETRIEVAL_PROTOCOLS, VIDEO_PROTOCOLS

__all__ = ["CAPTION_PROTOCOLS", "RANKINGS", "Embedded", "EvaluationInputs", "Results", "retrieval"]

# What embeddings are enough for: of any model and any ensemble.
RANKINGS: dict[str, Callable[[Embedded], Results]] = {
    **{name: partial(published_retrieval, name) for name in RETRIEVAL_PROTOCOLS},
    "cxc": crisscrossed,
    **{name: partial(video_retrieval, name) for name in VIDEO_PROTOCOLS},
}
# UniVSE's, which read the parsed captions and embed texts of their own: of any model.
CAPTION_PROTOCOLS: dict[str, Callable[[EvaluationInputs], Results]] = {
    "attack": attack,
    "components": components,
    "dependencies": dependencies,
}

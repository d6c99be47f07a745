"""UniVSE's evaluations beside plain retrieval, for any model: each gives figures, pictures and files of a split."""

from collections.abc import Callable

from pipelines.protocols.attack import attack
from pipelines.protocols.components import components
from pipelines.protocols.dependencies import dependencies
from pipelines.protocols.subject import Findings, Subject

__all__ = ["PROTOCOLS", "Findings", "Subject"]

PROTOCOLS: dict[str, Callable[[Subject], Findings]] = {
    "attack": attack,
    "components": components,
    "dependencies": dependencies,
}

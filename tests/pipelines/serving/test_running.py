"""The replica of a service without Ray: what is left of it after another has taken its place."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.serving.running import _OwnReplica
from tests.pipelines.tiny_bundle import write_tiny_bundle


@pytest.fixture
def without_collection() -> Iterator[None]:
    """Python looks for cycles by chance, and in a service that runs steadily hardly ever."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def _search(own: _OwnReplica) -> None:
    answers = await asyncio.gather(*(own.ask("search_text", "a dog", 2, "images") for _ in range(3)))
    assert all(len(answer["results"]) == 2 for answer in answers)
    await own.ask("image", "unknown")


@pytest.mark.usefixtures("without_collection")
def test_a_model_that_was_replaced_leaves_memory_at_once(tmp_path: Path) -> None:
    own = _OwnReplica(str(write_tiny_bundle(tmp_path / "old")), "unused")
    old = [weakref.ref(each) for each in (own._replica, own._replica._model, own._replica._model.gallery)]
    asyncio.run(_search(own))
    own.deploy(str(write_tiny_bundle(tmp_path / "new")))
    own._loading.join()
    asyncio.run(_search(own))
    assert own.state().is_settled
    assert [each() is None for each in old] == [True] * 3


def test_a_model_that_cannot_be_loaded_leaves_the_old_one(tmp_path: Path) -> None:
    own = _OwnReplica(str(write_tiny_bundle(tmp_path / "old")), "unused")
    own.deploy(str(tmp_path / "nowhere"))
    own._loading.join()
    assert own.state().failure
    asyncio.run(_search(own))

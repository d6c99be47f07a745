"""Second night: thirty starts of a schedule, over new images, none, wrong captions and a half-written table."""

from __future__ import annotations

import itertools
import json
import multiprocessing
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from pipelines.config import PipelineConfig, load_config
from pipelines.registry.models import CHALLENGER, CHAMPION, aliases_of
from pipelines.retraining import retrain
from pipelines.retraining.journal import LAST, LOG, STATUS, Journal
from pipelines.retraining.new_pairs import LEFT_OUT
from pipelines.runtime.lock import exclusive
from pipelines.runtime.stage import StageError
from pipelines.stages.extract import plan as extract
from pipelines.training.left_out import Pair, named_pairs
from preprocessing.datasets import DatasetError
from preprocessing.storage.base import BusyError
from tests.integration.seams.arriving_scenes import ArrivingScenes

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800), pytest.mark.usefixtures("ray_cluster")]

TINY = (
    "name=shop",
    "features={extractor: grid, weights: tiny_resnet, random_seed: 0, batch_size: 50, shard_size: 50}",
    "model={embed_dim: 64, text: {word_dim: 32}}",
    "training={epochs: 2, batch_size: 64, warmup: 10 steps, learning_rate: 0.002, cpus_per_worker: 1}",
    "loss={mask_same_image: true, all_negatives: 10 epochs}",
)
# What happens before the start of a night, and images that come with it.
NIGHTS = (
    ("more", 200),
    ("nothing", 0),
    ("killed", 200),
    ("nothing", 0),
    ("poisoned", 400),
    ("nothing", 0),
    ("two at once", 100),
    ("half written", 0),
    ("nothing", 0),
    ("more", 100),
) * 3


class Shop:
    """A data set that grows, the configuration of its schedule, and what the nights left behind."""

    def __init__(self, work_dir: Path, folder: Path) -> None:
        self.scenes = ArrivingScenes(folder, sum(images for _, images in NIGHTS), evaluation=100)
        self.config = load_config(None, [f"work_dir={work_dir}", self.scenes.settings, *TINY])
        self.client = MlflowClient(self.config.tracking_uri, self.config.tracking_uri)
        self.journal = work_dir / "retrain" / "shop"

    @property
    def champion(self) -> int | None:
        """Its version."""
        return aliases_of("shop", self.config.tracking_uri).get(CHAMPION)

    def start(self) -> dict[str, Any]:
        """One start of the schedule, as in a process of its own; returns the status that it leaves."""
        extract._summary.cache_clear()
        retrain.retrain(self.config)
        return self.status()

    def raise_limit(self, is_raised: bool) -> None:
        """Let as many new captions fit badly as do, or as the default has it."""
        retrain = self.config.retrain.model_copy(update={"audit_limit": 1.0 if is_raised else 0.3})
        self.config = self.config.model_copy(update={"retrain": retrain})

    def left_out(self) -> set[Pair]:
        """The captions that the last retraining left out."""
        last = json.loads((self.journal / LAST).read_text())
        file = self.journal / last["identity"][:16] / LEFT_OUT
        return named_pairs(file) if file.is_file() else set()

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads((self.journal / STATUS).read_text())
        return status

    def logged(self) -> list[str]:
        return [line.split("  ")[1].strip() for line in (self.journal / LOG).read_text().splitlines()]

    def files(self) -> dict[Path, tuple[int, int]]:
        """Files of the work folder but locks, with the time of their last change and their size."""
        paths = (path for path in self.config.work_dir.rglob("*") if path.is_file() and "lock" not in path.name)
        return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in paths}

    def bytes(self) -> int:
        """Bytes on the disk: shards that later versions of the data reuse are hard links."""
        return sum({path.stat().st_ino: size for path, (_, size) in self.files().items()}.values())


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def hold(config: PipelineConfig, folder: Path, has: Any, ends: Any) -> None:
    """Be the other retraining, in a process of its own, until it is told to end."""
    with exclusive(config.mirror, folder):
        has.set()
        ends.wait()


def two_at_once(shop: Shop) -> None:
    """The second start says who is at work, and leaves the status to that one."""
    context = multiprocessing.get_context("spawn")
    has, ends = context.Event(), context.Event()
    other = context.Process(target=hold, args=(shop.config, shop.journal, has, ends))
    other.start()
    assert has.wait(60)
    status = shop.status()
    with pytest.raises(BusyError, match=f"process {other.pid}"):
        shop.start()
    assert shop.status() == status
    ends.set()
    other.join()


def nothing_new(shop: Shop) -> None:
    before = shop.files()
    assert shop.start()["outcome"] == "nothing new"
    assert {path.name for path, state in shop.files().items() if before.get(path) != state} == {STATUS, LOG}


def half_written(shop: Shop) -> None:
    champion = shop.champion
    with shop.scenes.cut_short(), pytest.raises(DatasetError):
        shop.start()
    assert (shop.status()["outcome"], shop.champion) == ("failed", champion)


def killed(shop: Shop) -> None:
    """A kill at the end, when its model may be the champion already: the next start does not begin from that one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Journal, "finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            shop.start()


def stopped(shop: Shop) -> None:
    """The audit of what came new stops the start, until somebody has looked at it and raises the limit."""
    champion = shop.champion
    with pytest.raises(StageError, match=r"captions fit badly .* more than retrain.audit_limit"):
        shop.start()
    assert (shop.status()["outcome"], shop.champion) == ("failed", champion)


def trained(shop: Shop, arriving: int, champion: int | None, images: int) -> str:
    """The outcome follows from the comparison alone, and the champion from the outcome."""
    record = shop.start()["record"]
    challenger = record["decision"]["challenger"]
    assert shop.champion == (challenger if record["outcome"] == "promoted" else champion)
    assert aliases_of("shop", shop.config.tracking_uri)[CHALLENGER] == challenger
    assert record["start"]["version"] == champion
    assert record["decision"]["champion"] in {champion, challenger}  # the latter if it was promoted before a kill
    assert record["data"]["train"]["new_images"] == arriving
    assert record["data"]["train"]["images"] == images
    assert record["data"]["train"]["shards"]["extract"]["all"] == -(-images // 50)
    assert record["data"]["dev"]["new_images"] == (0 if champion else 100)
    return str(record["outcome"])


def test_thirty_nights(work_dir: Path, tmp_path: Path) -> None:
    shop, images = Shop(work_dir, tmp_path / "data"), 0
    expected: list[str] = []
    grown: list[int] = []
    left_out: list[set[Pair]] = []
    for event, arriving in NIGHTS:
        shop.scenes.arrive(arriving, poisoned=event == "poisoned")
        images += arriving
        if event == "nothing":
            nothing_new(shop)
            expected.append("nothing new")
        elif event == "half written":
            half_written(shop)
            expected.append("failed")
        else:
            champion, before = shop.champion, shop.bytes()
            if event == "two at once":
                two_at_once(shop)
            if event == "killed":
                killed(shop)
                expected.append("interrupted")
            if event == "poisoned":
                stopped(shop)
                expected.append("failed")
            shop.raise_limit(event == "poisoned")
            expected.append(trained(shop, arriving, champion, images))
            left_out.append(shop.left_out())
            grown.append(shop.bytes() - before)
    assert shop.logged() == expected
    first = ["promoted", "nothing new", "interrupted", "promoted", "nothing new", "failed"]
    assert expected[: len(first)] == first
    # What one night leaves out, all later ones do.
    assert all(earlier <= later for earlier, later in itertools.pairwise(left_out))
    assert len(left_out[2]) > 500, "of 2,000 captions, most of which are another image's"
    # A night costs what its own images and its model need, not what all nights before it had.
    assert max(grown) < 2 * min(grown), grown
    experiment = shop.client.get_experiment_by_name(shop.config.experiment.name)
    runs = shop.client.search_runs([experiment.experiment_id], max_results=1000)
    outcomes = Counter(run.data.tags["vse.outcome"] for run in runs if "vse.outcome" in run.data.tags)
    assert outcomes == Counter(outcome for outcome in expected if outcome in {"promoted", "refused"})

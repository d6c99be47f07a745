"""The pipeline on S3: the same shards as from a local disk."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.config import PipelineConfig, load_config
from pipelines.stages.extract import plan as extract
from pipelines.stages.runner import run_stages
from preprocessing.storage.s3 import S3Storage

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("ray_cluster", "s3_client")]

IMAGES = 10


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data set in Flickr8k's format; one of its images is damaged and one is not there."""
    folder = tmp_path_factory.mktemp("flickr")
    (folder / "images").mkdir()
    names = [f"{number:02d} é.jpg" for number in range(IMAGES)]
    for number, name in enumerate(names):
        pixels = np.random.default_rng(number).integers(0, 256, (64, 80, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / name)
    (folder / "images" / names[3]).write_bytes((folder / "images" / names[3]).read_bytes()[:500])
    (folder / "images" / names[4]).unlink()
    lines = [f"{name}#{number}\ta caption of {name}" for name in names for number in range(2)]
    (folder / "tokens.txt").write_text("\n".join(lines))
    (folder / "train.txt").write_text("\n".join(names[:7]))
    (folder / "dev.txt").write_text("\n".join(names[7:]))
    return folder


@pytest.fixture(autouse=True)
def data_as_it_is_now() -> Iterator[None]:
    extract._summary.cache_clear()
    yield
    extract._summary.cache_clear()


def loaded(photographs: Path, work_dir: Path, images: str, *overrides: str) -> PipelineConfig:
    dataset = {
        "format": "flickr",
        "images": images,
        "tokens": str(photographs / "tokens.txt"),
        "splits": {split: str(photographs / f"{split}.txt") for split in ("train", "dev")},
    }
    features = "features={extractor: grid, weights: tiny_resnet, random_seed: 0, batch_size: 2, shard_size: 3}"
    return load_config(
        None, [f"work_dir={work_dir}", f"dataset={dataset}", features, "training.batch_size=4", *overrides]
    )


def hashes(config: PipelineConfig) -> dict[str, str]:
    """The sha256 of every shard by split and name."""
    return {
        f"{split}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for split, directory in extract.plan(config, {}).outputs.items()
        for path in sorted(directory.glob("*.tar"))
    }


def another(work_dir: Path, name: str) -> Path:
    """The empty work folder of another machine."""
    folder = work_dir.with_name(name)
    folder.mkdir()
    shutil.copyfile(work_dir / "mlflow.db", folder / "mlflow.db")
    return folder


def test_the_same_shards_from_disk_and_from_s3(photographs: Path, work_dir: Path, bucket: str) -> None:
    images = S3Storage(f"{bucket}/photographs")
    for path in (photographs / "images").iterdir():
        images.upload(path, path.name)
    local = loaded(photographs, another(work_dir, "local"), str(photographs / "images"))
    remote = loaded(photographs, work_dir, images.address, f"storage.address={bucket}/outputs-both")
    for config in (local, remote):
        run_stages(config, ["extract"])
    assert len(hashes(local)) == 4
    assert hashes(remote) == hashes(local)
    stored = S3Storage(f"{bucket}/outputs-both")
    for split, directory in extract.plan(remote, {}).outputs.items():
        for path in directory.glob("*.tar"):
            name = path.relative_to(remote.work_dir).as_posix()
            assert hashlib.sha256(stored.read(name)).hexdigest() == hashes(local)[f"{split}/{path.name}"]


@pytest.mark.nightly
def test_a_small_disk_keeps_the_last_shards(photographs: Path, work_dir: Path, bucket: str) -> None:
    limit = f"storage={{address: {bucket}/outputs-small, cache_gb: 0.00004}}"  # 40 kB
    config = loaded(photographs, work_dir, str(photographs / "images"), limit)
    run_stages(config, ["extract"])
    assert extract.plan(config, {}).complete
    here = list((work_dir / "extract").rglob("shard-*.tar"))
    assert sum(path.stat().st_size for path in here) <= 40_000
    assert len(here) < 4


def test_artifacts_go_to_s3(photographs: Path, work_dir: Path, bucket: str) -> None:
    artifacts = f"tracking.artifacts={bucket}/artifacts"
    config = loaded(photographs, work_dir, str(photographs / "images"), "tracking.experiment=on-s3", artifacts)
    run_stages(config, ["extract"])
    names = [entry.name for entry in S3Storage(f"{bucket}/artifacts").list()]
    assert [name.rpartition("/")[2] for name in names] == ["skipped.json"]

"""Planning the extraction: what identifies its output, and that planning stays cheap."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import webdataset
from PIL import Image

from pipelines.config import ConfigError, PipelineConfig, load_config
from pipelines.stages.extract import identity
from pipelines.stages.extract import plan as extract
from pipelines.stages.extract import run as extract_run
from pipelines.stages.extract.identity import extractor_options
from preprocessing.datasets import DatasetError
from preprocessing.extraction.extract import ShardSpec
from preprocessing.features import build_extractor
from preprocessing.features.images import ImageError, load_image
from preprocessing.shards.index import read_index
from preprocessing.shards.reader import ShardReader
from preprocessing.storage.mirror import Mirror
from vse_core import hub

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(autouse=True)
def data_as_it_is_now() -> None:
    """Other tests of this process have had other data under the same configuration."""
    extract._summary.cache_clear()


SMALL = ["dataset.images={train: 7, dev: 4}", "features.shard_size=3", "training.batch_size=4"]


def loaded(folder: Path, *overrides: str) -> PipelineConfig:
    return load_config(None, [f"work_dir={folder}", *SMALL, *overrides])


def test_a_network_on_the_hub_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by transformers, which asks for half a minute."""
    monkeypatch.setattr(hub, "hf_hub_url", lambda name, _: f"http://127.0.0.1:9/{name}")
    monkeypatch.setattr(identity, "build_extractor", None)
    config = loaded(tmp_path, "features={extractor: grid, weights: some/resnet-50}")
    with pytest.raises(ConfigError, match=r"some/resnet-50', and the hub does not answer"):
        extract.plan(config, {})


def test_a_plan_counts(tmp_path: Path) -> None:
    plan = extract.plan(loaded(tmp_path), {})
    assert (plan.total, plan.done, plan.status) == (3 + 2, 0, "to do")
    assert plan.size == "11 images, 55 captions"
    assert set(plan.outputs) == {"train", "dev"}
    assert len({plan.outputs["train"].parent, plan.outputs["dev"].parent}) == 2


@pytest.mark.parametrize(
    ("override", "changes"),
    [
        ("features.actors=2", False),
        ("training.epochs=9", False),
        ("seed=9", False),
        ("features.batch_size=2", True),
        ("features.shard_size=2", True),
        ("features.random_seed=1", True),
        ("dataset.seed=1", True),
        ("dataset.images.dev=5", True),
    ],
)
def test_what_the_fingerprint_depends_on(tmp_path: Path, override: str, changes: bool) -> None:
    first, second = extract.plan(loaded(tmp_path), {}), extract.plan(loaded(tmp_path, override), {})
    assert (first.fingerprint != second.fingerprint) == changes


def write_archives(folder: Path, *samples: int) -> None:
    """Archives of this number of samples each, with img2dataset's count of them."""
    folder.mkdir(exist_ok=True)
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32), (200, 0, 0)).save(buffer, "JPEG")
    for number, count in enumerate(samples):
        with webdataset.TarWriter(str(folder / f"{number:05d}.tar")) as sink:
            for sample in range(count):
                sink.write({"__key__": f"{sample:09d}", "jpg": buffer.getvalue(), "txt": f"picture {sample}"})


def test_each_archive_becomes_a_shard(tmp_path: Path) -> None:
    """Planned without opening one, made by the actor's own code; another archive leaves the shards of the others."""
    images = tmp_path / "images"
    write_archives(images, 3, 2)
    dataset = f"dataset={{format: webdataset, folders: {{train: {images}, dev: {images}}}}}"
    config = load_config(None, [f"work_dir={tmp_path}/work", dataset])
    plan = extract.plan(config, {})
    assert (plan.size, plan.total) == ("4 archives", 4)
    split, _ = extract.splits_of(config)
    assert extract_run._images_to_do([split], [split.missing()]) is None
    actor = extract_run._Extraction("grid", extractor_options(config.features), 2, 1, 60.0, config.mirror)
    actor.prepare()
    assert [list(actor.work(spec)) for spec in split.specs(split.missing())] == [[None, 3], [None, 2]]
    extract_run._write_manifest(split)
    assert (split.shard_set.images, split.shard_set.captions, split.missing()) == (5, 5, set())
    index = read_index(split.shards[1])
    assert index.keys == ["100000000", "100000001"]
    assert ShardReader(split.directory.path, config.features.member).meta(3)["image_id"] == "00001/000000000"
    write_archives(tmp_path / "more", 1)
    (tmp_path / "more" / "00000.tar").rename(images / "00002.tar")
    extract._summary.cache_clear()
    grown, _ = extract.splits_of(config)
    assert grown.version.contents.items() > split.version.contents.items()
    assert len(grown.shards) == 3


def write_table(path: Path, captions: list[str]) -> None:
    rows = [f"{number}.png,{caption}" for number, caption in enumerate(captions)]
    path.write_text("\n".join(["image,caption", *rows]) + "\n")


def test_a_table_rewritten_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    """Shards never hold other records than their fingerprint says; rows appended at the end wait for the next run."""
    table, images, captions = tmp_path / "table.csv", tmp_path / "images", ["a dog", "a cat", "a cow", "a hen", "a ram"]
    images.mkdir()
    for number in range(len(captions) + 1):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(images / f"{number}.png")
    write_table(table, captions)
    dataset = f"dataset={{format: table, images: {images}, tables: {{train: {table}, dev: {table}}}}}"
    split, _ = extract.splits_of(load_config(None, [f"work_dir={tmp_path}/work", dataset, "features.shard_size=2"]))

    def texts() -> list[str]:
        records = [record for spec in split.specs(split.missing()) for record in spec.records]
        return [caption.text for record in records for caption in record.captions]

    assert texts() == captions
    write_table(table, [*captions, "a fox"])
    assert texts() == captions
    for others in (["a dog", "a cat", "a pig", *captions[3:]], captions[:4], captions[1:]):
        write_table(table, others)
        with pytest.raises(DatasetError, match="the records of train are others than when this run began"):
            texts()


BUTD = (
    "features={extractor: butd, random_seed: 0, min_regions: 2, max_regions: 5, batch_size: 2, shard_size: 3, "
    "random_size: {width: 2, blocks: [1, 1, 1], objects: 4, attributes: 3}}"
)


def test_regions_of_the_detector_become_shards(tmp_path: Path) -> None:
    """From the configuration to what training and drawing read, by the actor's own code."""
    config = load_config(None, [f"work_dir={tmp_path}", "dataset.images={train: 2, dev: 1}", BUTD])
    for split in extract.splits_of(config):
        actor = extract_run._Extraction(
            "butd",
            extractor_options(config.features),
            config.features.batch_size,
            1,
            60.0,
            config.mirror,
        )
        actor.prepare()
        assert [list(actor.work(spec)) for spec in split.specs(split.missing())] == [
            [None, {"train": 2, "dev": 1}[split.name]]
        ]
        assert not split.missing()
        reader = ShardReader(split.directory.path, config.features.member)
        (shard,) = split.shards
        names = ("region", "boxes", "objects", "object_scores", "attributes", "attribute_scores")
        for number, item in enumerate(webdataset.WebDataset(str(shard), shardshuffle=False).decode()):
            arrays = {name: item[f"{name}.npy"] for name in names}
            sides = load_image(reader.meta(number)["image"]).size
            count = len(reader.features(number))
            assert 2 <= count <= 5
            assert reader.feature_dim == 64
            assert [len(array) for array in arrays.values()] == [count] * 6
            assert (arrays["boxes"] <= [*sides, *sides]).all()
            assert set(arrays["objects"]) <= set(range(4))


def test_a_second_plan_imports_nothing_heavy(tmp_path: Path) -> None:
    """In a process of its own, since this one has imported everything already."""
    extract.plan(loaded(tmp_path), {})
    overrides = [f"work_dir={tmp_path}", *SMALL]
    code = (
        "import sys; from pipelines.stages.extract import plan as extract; from pipelines.config import load_config\n"
        f"extract.plan(load_config(None, {overrides!r}), {{}})\n"
        "print([name for name in ('torch', 'ray', 'mlflow', 'transformers') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert result.stdout == "[]\n", result.stderr


def test_a_limit_of_pixels_that_is_set_is_part_of_the_identity(tmp_path: Path) -> None:
    usual, small = (
        [split.directory.fingerprint for split in extract.splits_of(loaded(tmp_path, *more))]
        for more in ([], ["features.max_pixels=9000"])
    )
    assert set(usual).isdisjoint(small)
    options = extractor_options(loaded(tmp_path, "features.max_pixels=9000").features)
    extractor = build_extractor("grid", **options)
    with pytest.raises(ImageError, match="128 x 128 pixels, more than the limit of 9000"):
        extractor.load("scene://0/0")
    with pytest.raises(ConfigError, match="max_pixels"):
        loaded(tmp_path, "features={extractor: precomputed, max_pixels: 9}")


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_an_image_that_kills_the_process_is_skipped(tmp_path: Path, is_elsewhere: bool) -> None:
    """After two deaths the shard is made image by image, so that the third says at which one, on whatever machine."""
    storage = str(tmp_path / "storage") if is_elsewhere else None
    here, there = (Mirror(tmp_path / name, storage) for name in ("here", "there" if is_elsewhere else "here"))
    spec, other = (ShardSpec(each.root / "x" / "shard-00000.tar", "ab" * 32, "", 0, ()) for each in (here, there))
    retry = partial(extract_run.retry_after_crash, here)
    assert retry(spec, 1) == spec
    alone = retry(spec, 2)
    assert alone == replace(spec, one_by_one=True)
    other.path.parent.mkdir(parents=True)

    other.marker.write_bytes(b"/images/3")
    there.push(other.marker)
    assert retry(alone, 3) == replace(alone, crashed=("/images/3",))
    assert retry(alone, 4) is None

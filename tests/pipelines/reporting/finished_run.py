"""A pipeline run as its stages leave it behind, written by hand: small, and with captions that mean harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from pipelines.config import PipelineConfig, load_config
from pipelines.evaluation.query_table import Items, query_rows, write_query_table
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.stage import MANIFEST, StagePlan
from preprocessing.datasets import Caption, Record
from vse_core.digests import sealed
from vse_core.evaluation.recall import rank_retrieval

EVIL = "<script>alert('a caption')</script> & <img src=x onerror=alert(1)>"
IMAGES = 6
STAGES = ("extract", "train", "evaluate", "register")


def finished_run(work_dir: Path, *overrides: str) -> tuple[PipelineConfig, dict[str, StagePlan]]:
    """Write the outputs of every stage; returns the configuration and the plans of the stages."""
    config = load_config(None, [f"work_dir={work_dir}", *overrides])
    plans = {name: plan(work_dir, name) for name in STAGES}
    for split, directory in plans["extract"].outputs.items():
        skipped = [{"image_id": EVIL, "image": "x.jpg", "reason": "not an image"}] if split == "train" else []
        counts = {"records": 6 + len(skipped), "images": 6, "captions": 12, "bytes": 1_500_000, "shards": 1}
        write_manifest(directory, {"split": split, "counts": counts, "skipped": skipped, "summary": "12 captions"})
    gallery = hostile_gallery(work_dir)
    directory = plans["evaluate"].directory
    gallery.save(directory / "gallery")
    ranks = rank_retrieval([(gallery.images_BKD, gallery.texts_CD)], [2] * IMAGES, (1,))[1]
    images, captions = Items.images(gallery.records), Items.captions(gallery.records)
    directions = [
        query_rows("i2t", ranks.image_to_text, images, captions),
        query_rows("t2i", ranks.text_to_image, captions, images),
    ]
    write_query_table(directory, "retrieval", directions)
    (directory / "pictures").mkdir()
    for name in ("gpo_coefficients", "alpha_sweep"):
        Image.new("RGB", (30, 20), "white").save(directory / "pictures" / f"{name}.png")
    metrics = ranks.result().as_dict()
    metrics |= {"rsum_low": metrics["rsum"] - 5, "rsum_high": metrics["rsum"] + 5}
    write_manifest(directory, {"metrics": metrics, "split": "dev", "folds": 1, "summary": "dev RSUM as measured"})
    trained = {"vocabulary_size": 1234, "captions_truncated": 5678, "summary": "dev RSUM 599.5"}
    write_manifest(plans["train"].directory, trained)
    write_manifest(plans["register"].directory, {"summary": "scenes version 1"})
    return config, plans


def plan(work_dir: Path, name: str, is_done: bool = True) -> StagePlan:
    """The plan of a stage."""
    parts = {"extract": ("train", "dev"), "evaluate": ("gallery", "pictures")}.get(name, ())
    outputs = {part: work_dir / name / part for part in parts}
    return StagePlan(name, name[0] * 64, work_dir / name, 1, int(is_done), "parts", "a lot of work", outputs)


def write_manifest(directory: Path, content: dict[str, Any]) -> None:
    """Write the manifest of a stage."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MANIFEST).write_text(json.dumps(sealed({"digests": {}, **content})))


def hostile_gallery(directory: Path) -> Gallery:
    """Images with two captions each, of which the first is like its image and the second like the next one's."""
    records = []
    for image in range(IMAGES):
        path = directory / f"picture {image}.png"
        Image.new("RGB", (64, 48), (40 * image, 90, 120)).save(path)
        captions = (Caption(f"{image}#0", EVIL), Caption(f"{image}#1", f"caption {image}"))
        records.append(Record(f"image {image}", str(path), "dev", captions))
    order = [place for image in range(IMAGES) for place in (image, (image + 1) % IMAGES)]
    return Gallery(torch.eye(IMAGES).unsqueeze(1), torch.eye(IMAGES)[order], tuple(records))

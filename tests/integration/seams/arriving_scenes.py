"""A data set that grows from day to day: generated scenes as image files, with a table that names them."""

from __future__ import annotations

import contextlib
import csv
import random
from collections.abc import Iterator
from pathlib import Path

from preprocessing.datasets import Record, ScenesDataset
from preprocessing.datasets.scenes import parse_scene_uri, render_scene


class ArrivingScenes:
    """Photographs come to the training split; the evaluation split stays.

    Args:
        folder: where tables and images are written.
        images: most of the training split.
        evaluation: images of the evaluation split.
    """

    def __init__(self, folder: Path, images: int, evaluation: int) -> None:
        self._folder = folder
        (folder / "images").mkdir(parents=True)
        scenes = ScenesDataset(seed=0, images={"train": images, "dev": evaluation})
        self._waiting = list(scenes.records("train"))
        self._write("dev", list(scenes.records("dev")), [])
        self._write("train", [], [])

    @property
    def settings(self) -> str:
        """The data set as an override of the configuration."""
        tables = f"{{train: {self._folder}/train.csv, dev: {self._folder}/dev.csv}}"
        return f"dataset={{format: table, images: {self._folder}/images, tables: {tables}}}"

    def arrive(self, count: int, poisoned: bool = False) -> None:
        """Append images; in a poisoned batch each has the captions of another one."""
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        captions = [[caption.text for caption in record.captions] for record in batch]
        if poisoned:
            random.Random(0).shuffle(captions)
        self._write("train", batch, captions)

    @contextlib.contextmanager
    def cut_short(self) -> Iterator[None]:
        """Show the training table as it is while another program writes it: the header alone."""
        path = self._folder / "train.csv"
        table = path.read_bytes()
        path.write_bytes(table[: table.index(b"\n") + 1])
        yield
        path.write_bytes(table)

    def _write(self, split: str, batch: list[Record], captions: list[list[str]]) -> None:
        path = self._folder / f"{split}.csv"
        is_new = not path.exists()
        texts = captions or [[caption.text for caption in record.captions] for record in batch]
        with path.open("a", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            if is_new:
                table.writerow(["image", "caption"])
            for record, of_image in zip(batch, texts, strict=True):
                name = f"{split}-{record.image_id}.png"
                (self._folder / "images" / name).write_bytes(render_scene(*parse_scene_uri(record.image_uri)))
                table.writerows([name, text] for text in of_image)

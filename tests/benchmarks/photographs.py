"""The README's image of photographs: captions of COCO, and the photographs that a model of Flickr8k finds for them.

The photographs are those of $VSE_DATA/coco_mini whose licence allows it (CC BY or CC BY-SA); the page next to the
image credits them. The model has seen none of them. The captions in the image were chosen by hand; the recalls
that are printed are of all.

Run: python tests/benchmarks/photographs.py --model models:/flickr8k/1
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from PIL import Image

from pipelines.retrieval.hits import Hit, SheetRow, contact_sheet
from pipelines.retrieval.options import default_tracking_uri

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("VSE_DATA", ROOT.parent / "shared" / "data")) / "coco_mini"
PICTURE = ROOT / "docs" / "images" / "photographs.png"
ATTRIBUTION = ("Attribution License", "Attribution-ShareAlike License")
# COCO's ids of captions of people and sports, which are Flickr8k's subjects.
QUERIES = (256955, 69676, 576009, 163341, 533159)

Entry = dict[str, Any]


def main() -> None:
    """Write the image and its credits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", required=True, help="a registered model: models:/flickr8k/1")
    arguments = parser.parse_args()
    mlflow.set_tracking_uri(default_tracking_uri())
    model = mlflow.pyfunc.load_model(arguments.model)
    images, captions, licences = photographs()
    with tempfile.TemporaryDirectory() as folder:
        files = [squeezed(DATA / "images" / image["file_name"], Path(folder)).read_bytes() for image in images]
        images_BD = embedded(model, "image", files)
    similarities_CB = embedded(model, "text", [caption["caption"].strip() for caption in captions]) @ images_BD.T
    ranks = [rank(caption, images, line) for caption, line in zip(captions, similarities_CB, strict=True)]
    for k in (1, 5):
        print(f"R@{k} of {len(ranks)} captions: {100 * np.mean(np.array(ranks) <= k):.1f}")
    places = [next(place for place, caption in enumerate(captions) if caption["id"] == query) for query in QUERIES]
    rows = [row(captions[place], images, similarities_CB[place], ranks[place]) for place in places]
    page = PICTURE.with_suffix(".html")
    page.write_bytes(contact_sheet("Captions, and the nearest of 26 photographs", rows))
    browser = ("chromium", "--headless", "--hide-scrollbars", "--window-size=1240,1120")
    subprocess.run([*browser, f"--screenshot={PICTURE}", page.as_uri()], check=True)
    page.unlink()
    PICTURE.with_name("credits.md").write_text(credits_page(images, licences), encoding="utf-8")


def photographs() -> tuple[list[Entry], list[Entry], dict[int, Entry]]:
    """Return the photographs that may be shown, their captions, and the licences by their ids."""
    coco = json.loads((DATA / "annotations" / "captions_train2017.json").read_text(encoding="utf-8"))
    licences = {licence["id"]: licence for licence in coco["licenses"]}
    images = [image for image in coco["images"] if licences[image["license"]]["name"] in ATTRIBUTION]
    shown = {image["id"] for image in images}
    return images, [caption for caption in coco["annotations"] if caption["image_id"] in shown], licences


def squeezed(path: Path, folder: Path) -> Path:
    """Scale a photograph as those of the training are, to 224 x 224 whatever its aspect ratio."""
    file = folder / path.name
    Image.open(path).convert("RGB").resize((224, 224)).save(file, quality=95)
    return file


def embedded(model: Any, kind: str, values: list[Any]) -> np.ndarray:
    """Return the embeddings (N, D) of images or texts."""
    return np.array(model.predict(pd.DataFrame({kind: values}))["embedding"].tolist())


def rank(caption: Entry, images: list[Entry], similarities_B: np.ndarray) -> int:
    """Return the rank of a caption's photograph."""
    own = [image["id"] for image in images].index(caption["image_id"])
    return int(np.sum(similarities_B >= similarities_B[own]))


def row(caption: Entry, images: list[Entry], similarities_B: np.ndarray, own_rank: int) -> SheetRow:
    """Return a row of the sheet: a caption and its nearest photographs."""
    hits = [
        Hit(
            float(similarities_B[index]),
            str(images[index]["id"]),
            str(DATA / "images" / images[index]["file_name"]),
            relevant=images[index]["id"] == caption["image_id"],
        )
        for index in np.argsort(-similarities_B)[:5]
    ]
    return SheetRow(tuple(hits), query_text=caption["caption"].strip(), note=f"rank {own_rank} of {len(images)}")


def credits_page(images: list[Entry], licences: dict[int, Entry]) -> str:
    """Return the page that credits the photographs."""
    lines = [
        "# Credits",
        "",
        "`photographs.png` shows photographs of COCO (train2017), scaled down. They belong to their photographers on",
        "Flickr; the picture as a whole is available under CC BY-SA 2.0.",
        "",
        "| COCO id | photograph | licence |",
        "| --- | --- | --- |",
    ]
    for image in images:
        number, licence = image["flickr_url"].rsplit("/", 1)[1].partition("_")[0], licences[image["license"]]
        page = f"[Flickr {number}](https://www.flickr.com/photo.gne?id={number})"
        lines.append(f"| {image['id']} | {page} | [{licence['name']}]({licence['url']}) |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

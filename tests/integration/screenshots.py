"""The README's screenshots: the search page over a registered model, and MLflow's over recorded runs.

Run: python tests/integration/screenshots.py search --model flickr8k_univse "a brown dog runs through the snow" page.png
     python tests/integration/screenshots.py mlflow http://127.0.0.1:5000 /#/experiments/1/runs "Metrics" runs.png

The second opens an address of a running MLflow (`make ui`), waits for a text on it, and takes the screenshot.
A user and a password are taken from MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD if they are set.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from PIL import Image
from playwright.sync_api import Page, expect

from pipelines.retrieval.options import default_tracking_uri
from pipelines.serving.running import serving
from tests.integration import browser
from tests.ports import free_port


def save(page: Page, file: Path) -> None:
    """Write what the page shows as a small PNG."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    # A palette of its own makes an image of photographs a third of its size.
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.FLOYDSTEINBERG).save(file, optimize=True)
    print(f"{file}: {picture.width} x {picture.height}, {file.stat().st_size / 1000:.0f} kB")


def search(options: argparse.Namespace) -> None:
    """Serve the model, type the text, ask for the maps of the first images."""
    port = free_port()
    uri = options.tracking_uri or default_tracking_uri()
    with serving(options.model, uri, "127.0.0.1", port), browser.running() as page:
        problems = browser.problems_of(page)
        page.set_viewport_size({"width": 1060, "height": 800})
        page.goto(f"http://127.0.0.1:{port}/")
        expect(page.locator("#model")).to_contain_text("images")
        page.fill("#text", options.text)
        page.press("#text", "Enter")
        page.wait_for_load_state("networkidle")
        if page.evaluate("facts.finds_regions"):
            for button in page.locator(".phrases button").all()[:4]:
                button.click()
            expect(page.locator(".frame canvas")).to_have_count(4)
        save(page, options.output)
        assert problems == [], problems


def mlflow(options: argparse.Namespace) -> None:
    """Open one of MLflow's pages."""
    user, password = (os.environ.get(f"MLFLOW_TRACKING_{name}") for name in ("USERNAME", "PASSWORD"))
    with browser.running(user, password) as page:
        page.set_viewport_size({"width": options.width, "height": options.height})
        page.goto(options.address + options.path)
        page.get_by_text(options.wait_for).first.wait_for()
        page.wait_for_timeout(3000)  # what moves into its place
        save(page, options.output)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pages = parser.add_subparsers(required=True)
    own = pages.add_parser("search")
    own.add_argument("--model", required=True)
    own.add_argument("--tracking-uri")
    own.add_argument("text")
    own.add_argument("output", type=Path)
    own.set_defaults(take=search)
    theirs = pages.add_parser("mlflow")
    theirs.add_argument("address")
    theirs.add_argument("path")
    theirs.add_argument("wait_for", help="a text on the page")
    theirs.add_argument("output", type=Path)
    theirs.add_argument("--width", type=int, default=1500)
    theirs.add_argument("--height", type=int, default=900)
    theirs.set_defaults(take=mlflow)
    options = parser.parse_args()
    options.take(options)


if __name__ == "__main__":
    main()

"""A new user's hour: what the README and the documentation promise, from an empty folder and the wheel alone.

Run: python tests/benchmarks/hour.py FOLDER    # a new one outside of the repository, with a short path
"""

from __future__ import annotations

import csv
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from preprocessing.storage.atomic import write_json_atomic
from tests.benchmarks.reader import RESULTS, origin
from tests.dual_encoders import write_dual_encoder
from tests.integration import browser
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("VSE_DATA", ROOT.parent / "shared" / "data"))
FILES = {
    "clip.yaml": f"""name: clip
preset: dual_encoder
dataset: {{format: table, images: {DATA}/flickr8k/images, tables: {{train: captions.csv, dev: 10 %}}}}
features: {{extractor: images}}
model: {{weights: clip, lora: {{rank: 8}}}}
training: {{epochs: 2}}
""",
    "embed.py": """import json, sys, vse
model = vse.load("hf:exported")
vectors = [*model.embed(texts=["a dog", "two people"]), *model.embed(images=sys.argv[1:])]
json.dump([vector.tolist() for vector in vectors], open("vectors.json", "w"))""",
    # Other programs load the exported folder without this package, to the same vectors.
    "elsewhere.py": """import json, sys, torch
from PIL import Image
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoProcessor
expected, texts = torch.tensor(json.load(open("vectors.json"))), ["a dog", "two people"]
images = [Image.open(path).convert("RGB") for path in sys.argv[1:]]
network, processor = AutoModel.from_pretrained("exported"), AutoProcessor.from_pretrained("exported")
found = network(**processor(text=texts, images=images, padding=True, truncation=True, return_tensors="pt"))
model = SentenceTransformer("exported", device="cpu")
theirs = [torch.as_tensor(model.encode(each)) for each in (texts, images)]
for name, vectors in ("transformers", [found.text_embeds, found.image_embeds]), ("sentence-transformers", theirs):
    error = (torch.nn.functional.normalize(torch.cat(vectors)) - expected).abs().max().item()
    print(f"{name}: largest difference {error:.1e}")
    assert error < 1e-5
assert not {"vse", "vse_core", "pipelines", "preprocessing"} & set(sys.modules)""",
}


class Hour:
    """A folder with a table of captions and a CLIP, in which commands run; and what each took and printed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.here, self.steps = folder, folder / "here", list[dict[str, object]]()
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VSE_", "RAY_"))}
        own = {"PATH": f"{folder}/venv/bin:{kept['PATH']}", "HOME": str(folder), "RAY_TMPDIR": str(folder)}
        self.environment = {**kept, **own, "RAY_AUTH_MODE": "token"}
        self.here.mkdir(parents=True)
        names = (DATA / "flickr8k" / "Flickr_8k.trainImages.txt").read_text().split()[:200]
        lines = [line.partition("\t") for line in (DATA / "flickr8k" / "Flickr8k.token.txt").read_text().splitlines()]
        rows = [(name[:-2], caption) for name, _, caption in lines if name[:-2] in names]
        with (self.here / "captions.csv").open("w", newline="") as table:
            csv.writer(table).writerows([("image", "caption"), *rows])
        write_dual_encoder(self.here / "clip", "clip", [caption for _, caption in rows])
        for name, text in FILES.items():
            (self.here / name).write_text(text)

    def step(self, name: str, line: str, during: Callable[[], object] | None = None) -> None:
        """Run a command to its end, or until what is done while it runs is done."""
        log, began = self.folder / f"{name}.log", time.monotonic()
        with log.open("wb") as file:
            command = ["env", *shlex.split(line)]  # the program of the environment's PATH
            process = subprocess.Popen(command, cwd=self.here, env=self.environment, stdout=file, stderr=file)
            try:
                if during is not None:
                    during()
            finally:
                if during is not None:
                    process.terminate()
                status = process.wait()
        printed = [each.rpartition("\r")[2] for each in log.read_text(errors="replace").splitlines() if each.strip()]
        minutes = round((time.monotonic() - began) / 60, 2)
        self.steps.append({"step": name, "command": line, "minutes": minutes, "printed": printed})
        print(f"{name} | {minutes} min", *printed, sep="\n    ", flush=True)
        if status and during is None:
            raise SystemExit(f"{name} ended with {status}")

    def look(self, name: str, address: str, until: str, query: str = "") -> None:
        """Open a page in a browser as soon as it is served, search, and take a screenshot."""
        with browser.running() as page:
            patient = ("--retry", "120", "--retry-delay", "1", "--retry-connrefused")
            subprocess.run(["curl", "--silent", "--output", os.devnull, *patient, address], check=True)
            page.goto(address)
            if query:
                page.fill("#text", query)
                page.press("#text", "Enter")
            page.locator(until).first.wait_for()
            page.screenshot(path=self.folder / f"{name}.png")


def live(hour: Hour) -> None:
    """Do all of it, in the order of the README and the documentation."""
    step, folder, ports = hour.step, hour.folder, [free_port() for _ in range(5)]
    step("wheel", f"{sys.executable} -m pip wheel --quiet --no-deps --wheel-dir {folder} {ROOT}")
    step("environment", f"{sys.executable} -m venv {folder}/venv")
    step("install", f"pip install --quiet {next(folder.glob('*.whl'))}[export]")
    step("photographs", f"vse index --model hf:./clip --images {DATA}/coco_mini/images --name holiday")
    step("search", "vse search --gallery holiday 'a dog runs through the snow' -k 3")
    page = ("page", f"http://127.0.0.1:{ports[0]}/", "#results li:nth-child(12) img", "people sit at a table")
    step("page", f"vse serve --gallery holiday --port {ports[0]}", lambda: hour.look(*page))
    step("table", f"vse init captions.csv --images {DATA}/flickr8k/images")
    quick = f"vse full --config captions.yaml --set=features.weights={DATA}/mobilenet_v2 --set=training.epochs=3"
    step("model", quick)
    step("search of the model", "vse search --model captions 'a dog runs' -k 3 --output hits.html")
    step("CLIP", "vse full --config clip.yaml")
    step("export", "vse export --model clip --output exported")
    two = shlex.join(str(path) for path in sorted((DATA / "coco_mini" / "images").iterdir())[:2])
    step("Python", f"python embed.py {two}")
    step("elsewhere", f"python elsewhere.py {two}")
    head = f"--port {ports[1]} --dashboard-port {ports[2]} --dashboard-agent-listen-port {ports[3]}"
    submit = f"ray job submit --address http://127.0.0.1:{ports[2]} --working-dir . -- {quick} --set=seed=1"
    step("head", f"ray start --head --block {head}", lambda: (time.sleep(60), step("job", submit)))
    ui = ("ui", f"http://127.0.0.1:{ports[4]}/#/experiments", "text=captions")
    step("ui", f"vse ui --port {ports[4]}", lambda: hour.look(*ui))


if __name__ == "__main__":
    hour = Hour(Path(sys.argv[1]).resolve())
    live(hour)
    write_json_atomic(RESULTS / "hour.json", {**origin(), "steps": hour.steps})

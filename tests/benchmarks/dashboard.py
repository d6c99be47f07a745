"""Grafana's dashboard as a picture: every panel's queries, asked of a Prometheus that reads a service and a training.

A Ray cluster of this machine trains the embedded scenes twice, the second time while two replicas answer searches,
some of which are refused. A panel without data is an error. Prometheus comes from Debian's package.

Run: python tests/benchmarks/dashboard.py        (six minutes)
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # after this folder, whose neighbours are imported by their own names

import ray  # noqa: E402
import requests  # noqa: E402
import yaml  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

from tests.integration import debian  # noqa: E402
from tests.ports import free_port  # noqa: E402
from vse_core.evaluation.plots import OKABE_ITO  # noqa: E402

DASHBOARD = ROOT / "infra" / "monitoring" / "dashboard.json"
PICTURE = ROOT / "docs" / "images" / "dashboard.png"
SECONDS = 2  # between two readings
UNITS = {"bytes": ("MB", 1e6), "percentunit": ("%", 0.01), "reqps": ("a second", 1), "s": ("seconds", 1)}


class Series(NamedTuple):
    """What Prometheus has of a query: a name, labels, and values with the minutes since the start."""

    name: str
    labels: dict[str, str]
    minutes: list[float]
    values: list[Any]


def command(name: str, *options: str) -> list[str]:
    return [sys.executable, str(ROOT / "pipelines" / f"{name}.py"), *options]


@contextmanager
def running(command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command until the end of a ``with`` statement."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.terminate()


def awaited(url: str) -> str:
    """Return an address as soon as it answers."""
    for _ in range(180):
        try:
            requests.get(url, timeout=300)
        except requests.ConnectionError:
            time.sleep(1)
        else:
            return url
    raise TimeoutError(url)


def search(service: str, until: threading.Event) -> None:
    """Search by text and by image, ten times a second; every twentieth request is compressed, and refused."""
    picture = requests.get(f"{service}/images/{image_of(service)}", timeout=30).content
    number = 0
    while not until.wait(0.1):
        number += 1
        if number % 20 == 0:
            requests.post(f"{service}/search", json={}, headers={"Content-Encoding": "gzip"}, timeout=30)
        elif number % 4 == 0:
            requests.post(f"{service}/search/image?k=5", files={"image": ("a.jpg", picture, "image/jpeg")}, timeout=30)
        else:
            requests.post(f"{service}/search", json={"text": "a red circle above a blue square", "k": 5}, timeout=30)


def image_of(service: str) -> str:
    """Return the id of an image of the gallery."""
    found = requests.post(f"{service}/search", json={"text": "a circle", "k": 1}, timeout=60).json()
    return str(found["results"][0]["id"])


def asked(prometheus: str, target: dict[str, str], start: float, end: float) -> Iterator[Series]:
    """Yield the series of a panel's query, each with its name; ValueError if there is none."""
    window: dict[str, str | float] = {"query": target["expr"], "start": start, "end": end, "step": SECONDS}
    answer = requests.get(f"{prometheus}/api/v1/query_range", params=window, timeout=30).json()
    if not answer["data"]["result"]:
        raise ValueError(f"no data: {target['expr']}")
    for each in answer["data"]["result"]:
        name = target["legendFormat"]
        for label in re.findall(r"{{(\w+)}}", name):
            name = name.replace(f"{{{{{label}}}}}", each["metric"].get(label, ""))
        yield Series(name, each["metric"], [(at - start) / 60 for at, _ in each["values"]], each["values"])


def draw_lines(axes: Axes, panel: dict[str, Any], found: list[Series]) -> None:
    """Draw the series of a panel over minutes."""
    unit, scale = UNITS.get(panel["fieldConfig"]["defaults"]["unit"], ("", 1))
    most = 0.0
    for series, colour in zip(found, 2 * list(OKABE_ITO.values()), strict=False):
        values = [float(value) / scale for _, value in series.values]
        axes.plot(series.minutes, values, label=series.name, color=colour, linewidth=1.2)
        most = max(most, *values)
    axes.set(ylabel=unit, ylim=(0, 1.1 * most or 1))
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=6, frameon=False)


def draw_table(axes: Axes, found: list[Series]) -> None:
    """Write the labels of each series, without those of Prometheus."""
    cells = [
        [name, value]
        for series in found
        for name, value in sorted(series.labels.items())
        if value and name not in ("__name__", "job", "instance")
    ]
    axes.table(cells, loc="center", cellLoc="left", edges="horizontal").scale(1, 1.4)


def draw(prometheus: str, start: float, end: float) -> Figure:
    """Draw the dashboard as it is laid out, with the data of a Prometheus."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    figure, places = Figure(figsize=(13.0, 12.0)), [panel["gridPos"] for panel in panels]
    rows = max(at["y"] + at["h"] for at in places)
    for panel, at in zip(panels, places, strict=True):
        left, top, width, height = at["x"] / 24 + 0.05, 1 - at["y"] / rows, at["w"] / 24, at["h"] / rows
        if panel["type"] == "row":
            figure.text(left, top - 0.8 * height, panel["title"], fontsize=10, fontweight="bold")
            continue
        axes = figure.add_axes((left, top - height + 0.022, width - 0.06, height - 0.05))
        axes.set_title(panel["title"], loc="left", fontsize=9)
        found = [series for each in panel["targets"] for series in asked(prometheus, each, start, end)]
        if panel["type"] == "table":
            axes.axis("off")
            draw_table(axes, found)
        else:
            draw_lines(axes, panel, found)
            axes.set_xlim(0, (end - start) / 60)
    return figure


def watched(folder: Path, stack: ExitStack, read: list[int]) -> str:
    """Start a Prometheus that reads these ports; return its address."""
    settings: dict[str, Any] = {"global": {"scrape_interval": f"{SECONDS}s"}}
    targets = [{"targets": [f"127.0.0.1:{port}" for port in read]}]
    settings["scrape_configs"] = [{"job_name": "vse", "static_configs": targets}]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    options = [f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/prometheus"]
    stack.enter_context(running(["prometheus", *options, f"--web.listen-address={address}", "--log.level=error"]))
    return f"http://{address}"


def main() -> None:
    """Train, search, and draw what Prometheus has read."""
    debian.require(["prometheus"], ["prometheus"])
    of_ray, of_service, start = free_port(), free_port(), time.time()
    with tempfile.TemporaryDirectory(prefix="vse-dashboard-") as folder, ExitStack() as stack:
        ray.init(num_cpus=6, include_dashboard=False, _metrics_export_port=of_ray)
        stack.callback(ray.shutdown)
        os.environ |= {"VSE_WORK_DIR": f"{folder}/work", "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
        prometheus = watched(Path(folder), stack, [of_ray, of_service])
        subprocess.run(command("full"), check=True)
        stack.enter_context(
            running(command("serve", "--model", "scenes", "--replicas", "2", "--port", str(of_service)))
        )
        over, service = threading.Event(), awaited(f"http://127.0.0.1:{of_service}")
        with ThreadPoolExecutor(1) as pool:
            client = pool.submit(search, service, over)
            subprocess.run(command("train", "--set", "seed=1"), check=True)
            over.set()
            client.result()
        draw(prometheus, start, time.time()).savefig(PICTURE, dpi=80)


if __name__ == "__main__":
    main()

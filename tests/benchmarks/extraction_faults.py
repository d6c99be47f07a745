"""The extraction stage under every failure: what happened, how long the whole took, and what was lost.

Each row extracts the same photographs of Flickr8k in a process of its own, is disturbed in mid-run, is run once more
where it ended, and is compared with an undisturbed extraction byte for byte. Failures of single requests to S3 have a
table of their own: s3_faults.py.

Run: python tests/benchmarks/extraction_faults.py
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)

from preprocessing.storage import S3Storage, s3  # noqa: E402
from preprocessing.storage.atomic import write_json_atomic  # noqa: E402
from tests.benchmarks.reader import machine  # noqa: E402
from tests.integration import faults, s3_server  # noqa: E402
from tests.preprocessing.extraction.mutations import mutated  # noqa: E402

RESULTS = Path(__file__).with_name("results") / "extraction_faults.json"
TRAIN, DEV, SHARD = 200, 40, 20
SHARDS = (TRAIN + DEV) // SHARD
DISTURBED_AFTER = 3
OUTAGE_SECONDS = 20.0
ACTOR = "ray::_Extraction"


@dataclass
class ExtractionBench:
    """The photographs, and where extractions go.

    Attributes:
        root: a temporary folder.
        data: folder of Flickr8k.
        weights: folder of the network.
        expected: sha256 of each shard of the undisturbed extraction, by its path.
    """

    root: Path
    data: Path
    weights: Path
    expected: dict[str, str] = field(default_factory=dict)

    def command(self, work: Path, *overrides: str, options: tuple[str, ...] = ()) -> list[str]:
        """The command line of an extraction into a work folder."""
        splits = {split: str(self.root / f"{split}.txt") for split in ("train", "dev")}
        settings = (
            f"work_dir={work}",
            f"dataset={{format: flickr, images: {self.data / 'images'}, tokens: {self.root / 'tokens.txt'}, "
            f"splits: {splits}}}",
            f"features={{extractor: grid, weights: {self.weights}, random_seed: null}}",
            f"features={{batch_size: 10, shard_size: {SHARD}, actors: 2}}",
            *overrides,
        )
        script = str(ROOT / "pipelines" / "extract.py")
        return [sys.executable, script, *options, *(f"--set={setting}" for setting in settings)]

    def start(self, work: Path, *overrides: str, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Start an extraction."""
        work.mkdir(exist_ok=True)
        return subprocess.Popen(
            self.command(work, *overrides, options=options),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, work: Path, *overrides: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
        """Extract; returns the exit status and what was said last."""
        return ended(self.start(work, *overrides, options=options))

    def lost(self, work: Path) -> str:
        """Return what an extraction lacks compared with the undisturbed one."""
        found = hashes(work)
        wrong = sorted(name for name, digest in self.expected.items() if found.get(name) != digest)
        return f"{len(wrong)} shards" if wrong or len(found) != len(self.expected) else "nothing"


def hashes(work: Path) -> dict[str, str]:
    """The sha256 of each complete shard under a work folder, by split and name."""
    tars = sorted((work / "extract").glob("*/*/*.tar"))
    return {f"{path.parts[-3]}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest() for path in tars}


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for an extraction."""
    output, _ = process.communicate(timeout=600)
    lines = [line for line in output.replace("\r", "\n").splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("error") or line.startswith("│ extract")]
    last = (said or lines or [""])[-1]
    # Of the final table what was done: "160 images, 800 captions, 3 MB; skipped: nothing".
    return process.returncode, last.split("│")[4].strip() if "│" in last else last.strip()


def complete_shards(work: Path) -> int:
    """Return the number of complete shards."""
    return len(list((work / "extract").glob("*/*/shard-*.json")))


def wait_for_shards(work: Path, process: subprocess.Popen[str]) -> None:
    """Wait until the extraction is under way."""
    while complete_shards(work) < DISTURBED_AFTER:
        if process.poll() is not None:
            raise RuntimeError(f"the extraction ended too early: {process.communicate()[0]}")
        time.sleep(0.02)


def driver_killed(bench: ExtractionBench, work: Path) -> tuple[str, str]:
    """SIGKILL of the process that the user has started."""
    process = bench.start(work)
    wait_for_shards(work, process)
    process.kill()
    process.wait()
    kept = complete_shards(work)
    status, said = bench.run(work)
    return f"{kept} of {SHARDS} shards were complete; started again: exit {status}, {said}", bench.lost(work)


def actor_killed(bench: ExtractionBench, work: Path) -> tuple[str, str]:
    """SIGKILL of a worker process."""
    process = bench.start(work)
    wait_for_shards(work, process)
    os.kill(_actors()[0], signal.SIGKILL)
    status, said = ended(process)
    return f"replaced within the run: exit {status}, {said}", bench.lost(work)


def node_lost(bench: ExtractionBench, work: Path) -> tuple[str, str]:
    """The second node of a cluster goes with all its processes."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    node = cluster.add_node(num_cpus=1)
    try:
        process = bench.start(work, f"ray.address={cluster.address}")
        wait_for_shards(work, process)
        cluster.remove_node(node, allow_graceful=False)
        status, said = ended(process)
    finally:
        cluster.shutdown()
    return f"its shards were made on the other node: exit {status}, {said}", bench.lost(work)


def storage_away(bench: ExtractionBench, work: Path) -> tuple[str, str]:
    """Every request to S3 is answered with 503 SlowDown for a while, in mid-run."""
    with _s3(work.with_suffix(".s3")) as proxy:
        process = bench.start(work, "storage.address=s3://vse/run")
        wait_for_shards(work, process)
        for method in ("GET", "PUT", "HEAD", "POST"):
            proxy.inject(faults.Fault(kind="error:503:SlowDown", method=method, times=10**9))
        threading.Timer(OUTAGE_SECONDS, proxy.clear).start()
        status, said = ended(process)
    return f"503 for {OUTAGE_SECONDS:.0f} s: exit {status}, {said}", bench.lost(work)


def disk_full(bench: ExtractionBench, work: Path) -> tuple[str, str]:
    """The disk has no room for more shards; later it has."""
    work.mkdir()
    room = sum(path.stat().st_size for path in bench.root.glob("undisturbed/extract/*/*/*.tar")) // 2
    shutil.copyfile(bench.root / "undisturbed" / "mlflow.db", bench.root / "mlflow.db")
    tracking = f"tracking.uri=sqlite:///{bench.root / 'mlflow.db'}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", str(work)], check=True)
    try:
        status, said = bench.run(work, tracking)
        half = complete_shards(work)
        subprocess.run(["mount", "-o", "remount,size=2g", str(work)], check=True)
        again, _ = bench.run(work, tracking)
        lost = bench.lost(work)
    finally:
        subprocess.run(["umount", str(work)], check=True)
    said = said.replace(str(work), "WORK_DIR")
    return f"exit {status}, {said} ({half} complete shards); with room, started again: exit {again}", lost


def bit_flipped(bench: ExtractionBench, work: Path) -> tuple[str, str]:
    """A disk has changed a bit, a shard was cut short, and a sidecar is gone, long after the run."""
    shutil.copytree(bench.root / "undisturbed", work)
    tars = sorted((work / "extract").glob("*/*/*.tar"))
    data = bytearray(tars[0].read_bytes())
    data[len(data) // 2] ^= 1
    tars[0].write_bytes(data)
    with tars[1].open("r+b") as file:
        file.truncate(1000)
    tars[2].with_suffix(".json").unlink()
    status, said = bench.run(work, options=("--verify",))
    return f"--verify: exit {status}, {said}", bench.lost(work)


def image_hangs(bench: ExtractionBench, work: Path) -> tuple[str, str]:
    """The photographs lie on S3, and one of them takes longer to arrive than an image may."""
    names = [*(bench.root / "train.txt").read_text().split(), *(bench.root / "dev.txt").read_text().split()]
    with _s3(work.with_suffix(".s3")) as proxy:
        images = S3Storage("s3://vse/images")
        for name in names:
            images.upload(bench.data / "images" / name, name)
        proxy.inject(faults.Fault(kind="slow", times=10, holds=lambda path: names[0] in path))
        timeout = faults.SLOW_SECONDS / 2
        status, said = bench.run(work, "dataset={images: s3://vse/images}", f"features.image_timeout={timeout}")
    return f"given {timeout:.0f} s: exit {status}, {said}", _lost_but_first(bench, work)


def _lost_but_first(bench: ExtractionBench, work: Path) -> str:
    """Return what an extraction from other files lacks; its shards name other files, so features are compared."""
    from preprocessing.shards import ShardReader

    wrong, missing = 0, []
    for split in ("train", "dev"):
        ours, theirs = (
            ShardReader(next((root / "extract" / split).glob("*/shard-00000.tar")).parent, "grid")
            for root in (work, bench.root / "undisturbed")
        )
        places = {ours.meta(place)["image_id"]: place for place in range(len(ours))}
        for place in range(len(theirs)):
            image_id = theirs.meta(place)["image_id"]
            if image_id not in places:
                missing.append(image_id)
            elif (ours.features(places[image_id]) != theirs.features(place)).any():
                wrong += 1
    return f"{wrong} images" if wrong else f"skipped with its reason: {', '.join(missing)}"


def damaged_files(bench: ExtractionBench, work: Path) -> tuple[str, str]:
    """Files cut short, flipped, mislabelled, bombs: among the photographs of the training split."""
    images = bench.root / "damaged"
    images.mkdir()
    files = mutated(per_kind=24)
    names = [f"{number}.jpg" for number in range(len(files))]
    for name, (_, data) in zip(names, files, strict=True):
        (images / name).write_bytes(data)
    good = (bench.root / "dev.txt").read_text().split()
    for name in good:
        shutil.copy2(bench.data / "images" / name, images / name)
    lines = [f"{name}#0\ta picture" for name in (*names, *good)]
    (bench.root / "damaged-tokens.txt").write_text("\n".join(lines))
    (bench.root / "damaged.txt").write_text("\n".join([*names, *good]))
    (bench.root / "good.txt").write_text("\n".join(good))
    dataset = {
        "format": "flickr",
        "images": str(images),
        "tokens": str(bench.root / "damaged-tokens.txt"),
        "splits": {"train": str(bench.root / "damaged.txt"), "dev": str(bench.root / "good.txt")},
    }
    status, said = bench.run(work, f"dataset={dataset}")
    sidecars = [json.loads(path.read_text()) for path in (work / "extract").glob("*/*/shard-*.json")]
    accounted = sum(sidecar["count"] + len(sidecar["set_aside"]) for sidecar in sidecars)
    unaccounted = len(names) + 2 * len(good) - accounted
    return f"{len(names)} files: exit {status}, {said}", "nothing" if unaccounted == 0 else f"{unaccounted} images"


CASES: dict[str, Callable[[ExtractionBench, Path], tuple[str, str]]] = {
    "the driver is killed (SIGKILL)": driver_killed,
    "an actor is killed (SIGKILL)": actor_killed,
    "a node of two is lost": node_lost,
    "S3 answers 503 to everything": storage_away,
    "the disk is full": disk_full,
    "a bit flips, a shard is cut, a sidecar is gone": bit_flipped,
    "an image does not arrive in time": image_hangs,
    "damaged image files": damaged_files,
}


@contextmanager
def _s3(folder: Path) -> Iterator[faults.FaultyProxy]:
    """A server with an empty bucket "vse" behind a proxy, to which this process and its children go."""
    server = s3_server.start(folder)
    settings = {
        "AWS_ACCESS_KEY_ID": s3_server.ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": s3_server.SECRET_KEY,
        "AWS_REGION": s3_server.REGION,
    }
    try:
        with faults.faulty_proxy(server.port) as proxy, _environment({**settings, "AWS_ENDPOINT_URL": proxy.endpoint}):
            s3._client.cache_clear()
            s3.client().create_bucket(Bucket="vse")
            yield proxy
    finally:
        s3._client.cache_clear()
        server.stop()


@contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ |= settings
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def _actors() -> list[int]:
    """Process ids of the actors at work."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            name = path.read_bytes()
        except OSError:
            continue
        if name.startswith(ACTOR.encode()):
            found.append(int(path.parent.name))
    return found


def main() -> None:
    """Run the cases and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("VSE_DATA", "../shared/data")))
    parser.add_argument("--only", nargs="*", default=list(CASES), help="some of the cases; the others keep their rows")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        bench = ExtractionBench(
            Path(name), (arguments.data / "flickr8k").resolve(), (arguments.data / "mobilenet_v2").resolve()
        )
        _write_lists(bench)
        began = time.monotonic()
        status, said = bench.run(bench.root / "undisturbed")
        if status != 0:
            raise SystemExit(f"the undisturbed extraction failed: {said}")
        bench.expected = hashes(bench.root / "undisturbed")
        undisturbed = round(time.monotonic() - began, 1)
        rows = {row["failure"]: row for row in _earlier()}
        for number, failure in enumerate(arguments.only):
            began = time.monotonic()
            happened, lost = CASES[failure](bench, bench.root / f"case-{number}")
            seconds = round(time.monotonic() - began, 1)
            rows[failure] = {"failure": failure, "happened": happened, "lost": lost, "seconds": seconds}
            print(rows[failure], flush=True)
    result = {
        "command": "python tests/benchmarks/extraction_faults.py",
        "undisturbed_seconds": undisturbed,
        "images": TRAIN + DEV,
        "shards": SHARDS,
        "cases": [rows[failure] for failure in CASES if failure in rows],
        "machine": machine(),
    }
    write_json_atomic(RESULTS, result)


def _earlier() -> list[dict[str, str]]:
    if not RESULTS.exists():
        return []
    rows: list[dict[str, str]] = json.loads(RESULTS.read_text())["cases"]
    return rows


def _write_lists(bench: ExtractionBench) -> None:
    """A part of Flickr8k: its first photographs of the training and of the dev split."""
    chosen: list[str] = []
    for split, count in (("train", TRAIN), ("dev", DEV)):
        names = (bench.data / f"Flickr_8k.{split}Images.txt").read_text().split()[:count]
        (bench.root / f"{split}.txt").write_text("\n".join(names))
        chosen += names
    tokens = (bench.data / "Flickr8k.token.txt").read_text().splitlines()
    wanted = set(chosen)
    (bench.root / "tokens.txt").write_text("\n".join(line for line in tokens if line.split("#")[0] in wanted))


if __name__ == "__main__":
    main()

"""Seconds to plan an extraction of archives on S3: listing them, beside reading the records out of them.

The server is the tests' Swift, on this machine; listed are small archives, read are some of the size that is given,
whose time is scaled to as many.

Run: python tests/benchmarks/planning.py
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import webdataset
from reader import RESULTS, machine

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from preprocessing.datasets import build_dataset  # noqa: E402
from preprocessing.extraction import summarize  # noqa: E402
from preprocessing.storage import S3Storage, s3  # noqa: E402
from preprocessing.storage.atomic import write_json_atomic  # noqa: E402
from tests.integration import s3_server  # noqa: E402

IMAGE_BYTES = 60_000


def make_archive(path: Path, samples: int) -> None:
    """Write an archive of samples of a photograph's size."""
    with webdataset.TarWriter(str(path)) as sink:
        for number in range(samples):
            sink.write({"__key__": f"{number:09d}", "jpg": bytes(IMAGE_BYTES), "txt": "A dog runs."})


def upload(archive: Path, address: str, count: int) -> None:
    """Store one archive under many names."""
    storage = S3Storage(address)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: storage.upload(archive, f"{number:05d}.tar"), range(count)))


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--archives", type=int, default=10_000, help="that are listed")
    parser.add_argument("--read", type=int, default=10, help="archives that are read")
    parser.add_argument("--samples", type=int, default=1000, help="in an archive that is read")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = s3_server.start(Path(folder))
        os.environ |= {
            "AWS_ACCESS_KEY_ID": s3_server.ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": s3_server.SECRET_KEY,
            "AWS_REGION": s3_server.REGION,
            "AWS_ENDPOINT_URL": server.endpoint,
        }
        try:
            s3.client().create_bucket(Bucket="vse")
            small, large = Path(folder) / "small.tar", Path(folder) / "large.tar"
            make_archive(small, 0)
            make_archive(large, arguments.samples)
            upload(small, "s3://vse/many", arguments.archives)
            upload(large, "s3://vse/few", arguments.read)
            many = build_dataset("webdataset", folders={"train": "s3://vse/many"})
            few = build_dataset("webdataset", folders={"train": "s3://vse/few"})
            began = time.perf_counter()
            assert len(summarize(many, "train", 0).shards) == arguments.archives
            listing, began = time.perf_counter() - began, time.perf_counter()
            assert sum(1 for _ in few.records("train")) == arguments.read * arguments.samples
            reading = (time.perf_counter() - began) / arguments.read
        finally:
            server.stop()
    result = {
        "command": shlex.join(["python", *sys.argv]),
        "machine": machine(),
        "archives": arguments.archives,
        "images_in_archive": arguments.samples,
        "megabytes_of_archive": round(arguments.samples * IMAGE_BYTES / 1e6),
        "listing_seconds": round(listing, 2),
        "reading_seconds_of_archive": round(reading, 3),
    }
    write_json_atomic(RESULTS / "planning.json", result)
    print(result)


if __name__ == "__main__":
    main()

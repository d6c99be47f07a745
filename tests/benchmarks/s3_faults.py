"""Every failure of S3 injected once: what happened, in how many requests, and what was lost.

python tests/benchmarks/s3_faults.py
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)

from preprocessing.storage import S3Storage, StorageError, s3  # noqa: E402
from tests.integration import faults, s3_server  # noqa: E402
from tests.integration.fault_cases import ACTIONS, CASES, IN_PARTS, LARGE, SMALL, Case  # noqa: E402

RESULTS = Path(__file__).with_name("results") / "s3_faults.json"


def main() -> None:
    """Run every case against a server of its own, and write the table."""
    os.environ |= {
        "AWS_ACCESS_KEY_ID": s3_server.ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": s3_server.SECRET_KEY,
        "AWS_REGION": s3_server.REGION,
        "AWS_MAX_ATTEMPTS": "4",
    }
    s3.PART_BYTES = 5 << 20  # the smallest that S3 takes
    with tempfile.TemporaryDirectory() as folder:
        server = s3_server.start(Path(folder) / "swift")
        try:
            with faults.faulty_proxy(server.port) as proxy:
                os.environ["AWS_ENDPOINT_URL"] = proxy.endpoint
                s3.client().create_bucket(Bucket="vse")
                rows = [_row(case, number, proxy, Path(folder)) for number, case in enumerate(CASES)]
        finally:
            server.stop()
    machine = {
        "python": platform.python_version(),
        "boto3": metadata.version("boto3"),
        "server": "OpenStack Swift, S3 API",
    }
    RESULTS.write_text(json.dumps({"machine": machine, "cases": rows}, indent=1) + "\n")


def _row(case: Case, number: int, proxy: faults.FaultyProxy, folder: Path) -> dict[str, Any]:
    storage = S3Storage(f"s3://vse/{number}")
    own = folder / str(number)
    own.mkdir()
    (own / "original").write_bytes(SMALL)
    storage.upload(own / "original", "small")
    proxy.clear()
    proxy.inject(faults.Fault(**case.fault))
    if case.fault["kind"] == "slow":
        s3._READ_SECONDS = int(faults.SLOW_SECONDS / 2)
    s3._client.cache_clear()
    began = time.monotonic()
    try:
        result = ACTIONS[case.action](storage, own)
        outcome = "done" if result == (LARGE if case.action in IN_PARTS else SMALL) else "WRONG BYTES"
    except StorageError as error:
        # Nothing half-written may pass for whole, and what was there is still there.
        is_clean = not (own / "copy").exists() and _unharmed(storage, proxy)
        outcome = f"one error: {error}" if is_clean else "HALF WRITTEN"
    s3._READ_SECONDS = 60
    s3._client.cache_clear()
    row = {
        "failure": case.failure,
        "while": case.action,
        "injected": proxy.happened.total(),
        "requests": proxy.requests.total(),
        "outcome": outcome,
        "lost": "nothing" if outcome.startswith(("done", "one error")) else "DATA",
        "seconds": round(time.monotonic() - began, 2),
    }
    print(row)
    return row


def _unharmed(storage: S3Storage, proxy: faults.FaultyProxy) -> bool:
    with proxy.lock:
        proxy.faults.clear()
    s3._client.cache_clear()
    return storage.read("small") == SMALL


if __name__ == "__main__":
    main()

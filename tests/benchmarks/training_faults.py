"""Every failure that training has to live with, injected once: what happened, what was repeated, what was lost.

python tests/benchmarks/training_faults.py [CASE ...]

It starts Ray on this machine, so no other cluster should run here; for the full disk it mounts a small file system in
memory, and for hosts that come and go it makes network namespaces, both as root. Results of cases that are not run
again stay in the table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)

from preprocessing.storage.atomic import write_json_atomic  # noqa: E402
from tests.integration import faults, s3_server  # noqa: E402
from tests.integration.hosts import HEAD, Hosts  # noqa: E402
from tests.ports import free_port  # noqa: E402

RESULTS = Path(__file__).with_name("results") / "training_faults.json"
SCRIPT = "from pipelines.stages.runner import main; main('extract', 'train')"
# Of the cases in which a process ends, and of those in which a server is away for a minute.
SHORT, LONG = 2, 30
SETTINGS = [
    "dataset.images={train: 200, dev: 20}",
    "features.shard_size=50",
    "model.embed_dim=32",
    "model.text.word_dim=16",
    "training.batch_size=32",
    "training.log_steps=1",
    "training.checkpoint_steps=10",
    "training.workers=2",
    "training.cpus_per_worker=0.5",
    "training.collective_timeout=60",
]
OUTAGE_SECONDS = 60.0
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
}
# One worker adds up in another order than two. At the usual rate the first hundred steps make much of that: a
# difference in the eighth digit is a hundred times as large twenty steps later.
GENTLE = "training.learning_rate=1e-5"
# Of a machine that is announced to be taken away.
NOTICE_SECONDS = 20


class Job:
    """A run of the first stages, and what is seen of it from outside.

    Args:
        work_dir: of the run.
        epochs: of training.
        settings: besides those that all runs have.
        hosts: whose head it runs on; None is this machine, where it starts a cluster of its own.
    """

    def __init__(self, work_dir: Path, epochs: int, *settings: str, hosts: Hosts | None = None) -> None:
        self.work_dir = work_dir
        self.log = work_dir.with_suffix(f".{time.time_ns()}.log")
        everything = (f"work_dir={work_dir}", *SETTINGS, f"training.epochs={epochs}", *settings)
        command = [sys.executable, "-c", SCRIPT, *(f"--set={setting}" for setting in everything)]
        if hosts is not None:
            self.process = hosts.run(*command, log=self.log)
        else:
            output = self.log.open("wb")
            self.process = subprocess.Popen(
                command, env={**os.environ, **ENVIRONMENT}, stdout=output, stderr=subprocess.STDOUT
            )
        self.repeated = 0
        self.longest_pause = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def losses(self) -> list[float]:
        """The losses so far."""
        text = "".join(path.read_text() for path in self.work_dir.glob("train/*/losses.jsonl"))
        return [json.loads(line)["loss"] for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def wait_for(self, losses: int) -> None:
        """Return once the run has that many losses."""
        self.wait_until(lambda: len(self.losses()) >= losses)

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """Return once a condition holds, while the run continues."""
        while not happened():
            if self.process.poll() is not None:
                raise RuntimeError(f"the run has ended before: {self.log.read_text()[-3000:]}")
            time.sleep(0.01)

    def newest_checkpoint(self) -> int:
        """The steps that the newest checkpoint has behind it."""
        names = (path.parent.name for path in self.work_dir.glob("train/*/checkpoints/step-*/progress.json"))
        return max((int(name.removeprefix("step-")) for name in names), default=0)

    def end(self) -> int:
        """Wait for the end; returns the exit status."""
        return self.process.wait()

    def last_words(self) -> str:
        """The error or remark that the user sees last."""
        lines = self.log.read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if line.startswith(("error", "interrupted"))), "")

    def _watch(self) -> None:
        """Count the steps that are done a second time, and the longest time without a new one."""
        most = before = 0
        since = None
        while self.process.poll() is None:
            count = len(self.losses())
            if count < before:
                self.repeated += before - count
            if count > most:
                if since is not None:
                    self.longest_pause = max(self.longest_pause, time.monotonic() - since)
                most, since = count, time.monotonic()
            before = count
            time.sleep(0.02)


def _first_beyond(tolerance: float, losses: list[float], quiet: list[float]) -> int | None:
    """The first step, from 1, whose loss differs by more than so much, relatively."""
    pairs = enumerate(zip(losses, quiet, strict=False), start=1)
    return next((step for step, (one, other) in pairs if abs(one / other - 1) > tolerance), None)


def descendants(root: int) -> list[int]:
    """Return a process and all that came of it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _workers(root: int) -> list[int]:
    """The training workers among the processes that came of one."""
    return [pid for pid in descendants(root) if "RayTrainWorker" in _command(pid)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


class Faults:
    """All cases, over one folder in which a quiet run is what they are compared with.

    Args:
        folder: for work folders.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def quiet(self, epochs: int, *settings: str) -> list[float]:
        """The losses of a run that nothing happens to."""
        job_dir = self.folder / "-".join(("quiet", str(epochs), *settings))
        path = job_dir.with_suffix(".json")
        if not path.exists():
            job = Job(self._begun(job_dir.name), epochs, *settings)
            if job.end():
                raise RuntimeError(job.log.read_text())
            write_json_atomic(path, job.losses())
            shutil.copytree(job_dir / "extract", self.folder / "extract", dirs_exist_ok=True)
        losses: list[float] = json.loads(path.read_text())
        return losses

    def _begun(self, name: str) -> Path:
        """A new work folder, extracted already where any is."""
        work_dir = self.folder / name
        shutil.rmtree(work_dir, ignore_errors=True)
        work_dir.mkdir()
        if (self.folder / "extract").exists():
            shutil.copytree(self.folder / "extract", work_dir / "extract")
        return work_dir

    def sigkill_of_one_rank(self) -> dict[str, Any]:
        """One training process is killed."""
        return self._signalled(signal.SIGKILL, lambda job: _workers(job.process.pid)[1:2])

    def sigterm_of_one_rank(self) -> dict[str, Any]:
        """One training process is told to end."""
        return self._signalled(signal.SIGTERM, lambda job: _workers(job.process.pid)[1:2])

    def sigkill_of_everything(self) -> dict[str, Any]:
        """The driver, its cluster and the workers are killed; the same command is given again."""
        return self._signalled(signal.SIGKILL, lambda job: descendants(job.process.pid))

    def sigterm_of_the_driver(self) -> dict[str, Any]:
        """The driver is told to end; the same command is given again."""
        return self._signalled(signal.SIGTERM, lambda job: [job.process.pid])

    def _signalled(self, number: signal.Signals, chosen: Callable[[Job], list[int]]) -> dict[str, Any]:
        epochs = SHORT
        quiet = self.quiet(epochs)
        # A folder of its own: MLflow keeps connections to a database whose file has been replaced.
        work_dir = self._begun(f"signalled-{time.time_ns()}")
        job = Job(work_dir, epochs)
        job.wait_for(len(quiet) // 2 + 4)
        for pid in chosen(job):
            os.kill(pid, number)
        status = job.end()
        result: dict[str, Any] = {"exit_status": status, "said": job.last_words()}
        if status:
            result["runs_in_mlflow_after_it"] = _statuses(work_dir)
            reached = len(job.losses())
            job = Job(work_dir, epochs)
            result["exit_status_of_the_second_start"] = job.end()
            result["runs_in_mlflow_at_the_end"] = _statuses(work_dir)
            result["steps_reached"] = reached
        return {**result, **self._compared(job, quiet)}

    def mlflow_away(self) -> dict[str, Any]:
        """The MLflow server is stopped for a minute in mid-run."""
        quiet = self.quiet(LONG)
        work_dir, port = self._begun("mlflow"), free_port()
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(_mlflow_server(work_dir, port))
            address = f"http://127.0.0.1:{port}"
            job = Job(work_dir, LONG, f"tracking.uri={address}")
            job.wait_for(20)
            _stop(server)
            stopped = len(job.losses())
            time.sleep(OUTAGE_SECONDS)
            came_back = len(job.losses())
            stack.enter_context(_mlflow_server(work_dir, port))
            status = job.end()
            logged = _metric_steps(address, "train/loss")
        return {
            "exit_status": status,
            "steps_during_the_outage": came_back - stopped,
            "losses_missing_in_mlflow": len(set(range(1, len(quiet) + 1)) - set(logged)),
            "in_order": logged == sorted(logged),
            **self._compared(job, quiet),
        }

    def s3_away(self) -> dict[str, Any]:
        """S3 answers every request with 503 for a minute in mid-run."""
        quiet = self.quiet(LONG)
        work_dir = self._begun("s3")
        server = s3_server.start(self.folder / "swift")
        environment = {
            "AWS_ACCESS_KEY_ID": s3_server.ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": s3_server.SECRET_KEY,
            "AWS_REGION": s3_server.REGION,
        }
        os.environ |= environment
        try:
            with faults.faulty_proxy(server.port) as proxy:
                os.environ["AWS_ENDPOINT_URL"] = proxy.endpoint
                from preprocessing.storage import S3Storage, s3

                bucket = f"vse{time.time_ns()}"
                s3.client().create_bucket(Bucket=bucket)
                job = Job(work_dir, LONG, f"storage.address=s3://{bucket}/outputs")
                job.wait_for(20)
                for method in ("GET", "PUT", "POST", "HEAD", "DELETE"):
                    proxy.inject(faults.Fault("error:503:SlowDown", method, times=10**9))
                stopped = len(job.losses())
                time.sleep(OUTAGE_SECONDS)
                with proxy.lock:
                    proxy.faults.clear()
                refused, came_back = proxy.happened.total(), len(job.losses())
                status = job.end()
                stored = {entry.name for entry in S3Storage(f"s3://{bucket}/outputs").list("train")}
        finally:
            server.stop()
        here = {path.relative_to(work_dir).as_posix() for path in work_dir.glob("train/*/*/**/*.safetensors")}
        return {
            "exit_status": status,
            "requests_refused": refused,
            "steps_during_the_outage": came_back - stopped,
            "checkpoint_files_missing_on_s3": len(here - stored),
            **self._compared(job, quiet),
        }

    def disk_full(self) -> dict[str, Any]:
        """The disk of the work folder is full in mid-run; room is made, and the same command is given again."""
        epochs = SHORT
        quiet = self.quiet(epochs)
        work_dir = self.folder / "disk"
        work_dir.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", str(work_dir)], check=True)
        try:
            shutil.copytree(self.folder / "extract", work_dir / "extract")
            job = Job(work_dir, epochs)
            job.wait_for(len(quiet) // 2)
            with contextlib.suppress(OSError), (work_dir / "ballast").open("wb", buffering=0) as ballast:
                while ballast.write(bytes(4096)):
                    pass
            status, said = job.end(), job.last_words()
            half_written = [str(path) for path in work_dir.glob("train/*/checkpoints/.*")]
            (work_dir / "ballast").unlink()
            reached = len(job.losses())
            job = Job(work_dir, epochs)
            again = job.end()
            compared = self._compared(job, quiet)
        finally:
            subprocess.run(["umount", str(work_dir)], check=True)
        return {
            "exit_status": status,
            "said": said,
            "half_written": half_written,
            "steps_reached": reached,
            "exit_status_of_the_second_start": again,
            **compared,
        }

    def lost_host_of_an_elastic_group(self) -> dict[str, Any]:
        """One of two hosts loses its power; one worker continues, and a new host joins later."""
        quiet = self.quiet(LONG, GENTLE)
        with self._hosts(HEAD, 2, 3) as hosts:
            # A host has one CPU: the worker that is left cannot get company before there is another.
            elastic = ("training.workers=[1, 2]", "training.cpus_per_worker=1", GENTLE)
            job = Job(self._begun("elastic"), LONG, *elastic, hosts=hosts)
            job.wait_for(20)
            sizes = [len(_workers(os.getpid()))]
            hosts.cut_power(3)
            reached = len(job.losses())
            job.wait_for(reached + 5)
            sizes.append(len(_workers(os.getpid())))
            hosts.start(4)
            job.wait_until(lambda: len(_workers(os.getpid())) == 2)
            grew_at = len(job.losses())
            sizes.append(2)
            status = job.end()
        return {
            "exit_status": status,
            "workers": sizes,
            "losses_when_it_grew_again": grew_at,
            # Rounding decides now and then which negative is the hardest.
            "first_step_beyond_1e-5": _first_beyond(1e-5, job.losses(), quiet),
            **self._compared(job, quiet, 1e-3),
        }

    def host_taken_away_with_notice(self) -> dict[str, Any]:
        """Ray is told that one of two hosts ends in 20 seconds; it ends then, and a new one joins."""
        quiet = self.quiet(LONG)
        with self._hosts(HEAD, 2, 3) as hosts:
            job = Job(self._begun("notice"), LONG, "training.placement=STRICT_SPREAD", hosts=hosts)
            job.wait_for(23)
            notice = [f"--deadline-remaining-seconds={NOTICE_SECONDS}", "--reason-message=spot machine"]
            hosts.run(
                *(str(Path(sys.executable).with_name("ray")), "drain-node", *notice),
                "--reason=DRAIN_NODE_REASON_PREEMPTION",
                log=self.folder / "drain.log",
                host=3,
            ).wait()
            told = time.monotonic()
            job.wait_until(lambda: job.newest_checkpoint() % 10 > 0 or time.monotonic() - told > NOTICE_SECONDS)
            saved = job.newest_checkpoint()
            time.sleep(max(0.0, told + NOTICE_SECONDS - time.monotonic()))
            hosts.cut_power(3)
            hosts.start(4)
            status = job.end()
        return {
            "exit_status": status,
            "checkpoint_made_for_it": saved % 10 > 0,
            **self._compared(job, quiet),
        }

    @contextlib.contextmanager
    def _hosts(self, *numbers: int) -> Iterator[Hosts]:
        """Hosts of a cluster, which end with the block."""
        folder = Path(tempfile.mkdtemp(prefix="vse-", dir="/tmp"))  # sockets lie in it: a short path
        hosts = Hosts(folder, {**ENVIRONMENT, "OMP_NUM_THREADS": "1"})
        try:
            hosts.start(*numbers)
            yield hosts
        finally:
            hosts.close()
            shutil.rmtree(folder, ignore_errors=True)

    def _compared(self, job: Job, quiet: list[float], tolerance: float = 1e-6) -> dict[str, Any]:
        losses = job.losses()
        same = len(losses) == len(quiet)
        pairs = zip(losses, quiet, strict=False)
        difference = max(abs(one / other - 1) for one, other in pairs) if losses else None
        return {
            "steps": len(quiet),
            "steps_repeated": job.repeated,
            "longest_pause_seconds": round(job.longest_pause, 1),
            "largest_relative_difference_of_losses": difference,
            "lost": "nothing" if same and difference is not None and difference <= tolerance else "LOSSES DIFFER",
            **({} if job.process.returncode == 0 else {"log": job.log.read_text()[-2000:]}),
        }


CASES = (
    "sigkill_of_one_rank",
    "sigterm_of_one_rank",
    "sigkill_of_everything",
    "sigterm_of_the_driver",
    "disk_full",
    "mlflow_away",
    "s3_away",
    "lost_host_of_an_elastic_group",
    "host_taken_away_with_notice",
)


@contextlib.contextmanager
def _mlflow_server(work_dir: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """An MLflow server over a database in the work folder, until the block ends or it is stopped before."""
    database = f"sqlite:///{work_dir}/server.db"
    arguments = ["server", "--workers", "1", "--port", str(port), "--backend-store-uri", database]
    process = subprocess.Popen(
        [
            str(Path(sys.executable).with_name("mlflow")),
            *arguments,
            "--artifacts-destination",
            str(work_dir / "artifacts"),
        ],
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.2)
        yield process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _statuses(work_dir: Path) -> list[str]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{work_dir}/mlflow.db")
    ids = [experiment.experiment_id for experiment in client.search_experiments()]
    return sorted(run.info.status for run in client.search_runs(ids))


def _metric_steps(address: str, name: str) -> list[int]:
    from mlflow import MlflowClient

    client = MlflowClient(address)
    ids = [experiment.experiment_id for experiment in client.search_experiments()]
    steps: list[int] = []
    for run in client.search_runs(ids):
        steps += [metric.step for metric in client.get_metric_history(run.info.run_id, name)]
    return steps


def main() -> None:
    """Run the cases and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; by default all")
    parser.add_argument("--folder", type=Path, required=True, help="for work folders; a quiet run in it is used again")
    arguments = parser.parse_args()
    table = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cases": {}}
    table["command"] = "python tests/benchmarks/training_faults.py --folder FOLDER"
    table["machine"] = {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        **{name: metadata.version(name) for name in ("ray", "torch", "mlflow")},
    }
    cases = Faults(arguments.folder.absolute())
    for name in arguments.cases or CASES:
        method = getattr(cases, name)
        table["cases"][name] = {"failure": method.__doc__, **method()}
        print(name, json.dumps(table["cases"][name], indent=1), flush=True)
        write_json_atomic(RESULTS, table)


if __name__ == "__main__":
    main()

"""Look at everything a run depends on, on every machine, and say what to do about what is wrong.

    python -m infra.doctor --config pipelines/config/data/flickr8k.yaml

One line a check, exit status 1 if anything is wrong. With a cluster, the configuration's or that of RAY_ADDRESS, each
of its machines is asked; without one, this machine. Nothing is started and nothing stays behind.
"""

from __future__ import annotations

import email.utils
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.findings import Finding, about_clocks, about_disk, about_gpus, about_storage, about_versions
from infra.node_facts import NodeFacts, Probe, node_facts, requirements
from pipelines.config import ConfigError, PipelineConfig, load_config
from pipelines.runtime import cluster
from pipelines.runtime.cli import config_parser
from pipelines.stages.preflight import check_tracking

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 5.0
_NODE_SECONDS = 120.0
_CLOCK_ROUNDS = 3

# Ray hides the GPUs from who has not asked for any.
_SEES_GPUS = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

Offsets = dict[str, tuple[float, float]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each check; return 0 when all is well, 1 when anything is wrong."""
    parser = config_parser("Check versions, GPUs, storage, MLflow, disk and clocks of all machines.")
    options = parser.parse_args(arguments)
    try:
        config = load_config(options.config, options.set)
    except ConfigError as error:
        sys.stdout.write(Finding("configuration", str(error), "correct the file, then ask again").line() + "\n")
        return 1
    all_well = True
    for finding in examine(config):
        sys.stdout.write(finding.line() + "\n")
        sys.stdout.flush()
        all_well = all_well and finding.is_well
    return 0 if all_well else 1


def examine(config: PipelineConfig) -> Iterator[Finding]:
    """Look at everything that the configuration refers to, one finding after the other."""
    yield Finding("configuration", f"{config.name}, preset {config.preset}")
    addresses = [address for address in (config.storage.address, config.tracking.artifacts) if address is not None]
    nodes = [node_facts(config.work_dir, addresses)]
    offsets: Offsets = {}
    promised: dict[str, float] = {}
    address = cluster.cluster_address(config.ray.address)
    if address is None:
        yield Finding("Ray", "no cluster is named; jobs start one on this machine")
    else:
        yield (joined := _join(config, address))
        if joined.is_well:
            with _probes() as probes:
                others, offsets, promised, lost = _asked(probes, config.work_dir, addresses)
            nodes += others
            yield _answers(len(probes), lost)
    yield about_versions(nodes, requirements())
    yield about_gpus(nodes[1:] or nodes, _gpus_wanted(config), promised)
    yield about_disk(nodes, (config.storage.cache_gb or 0.0) * 1e9)
    yield about_storage(nodes, addresses)
    tracking, server_offset = _tracking(config.tracking_uri, len(promised))
    yield tracking
    yield about_clocks(offsets | server_offset)


def _gpus_wanted(config: PipelineConfig) -> float:
    features, training = config.features, config.training
    return max(features.actors * features.gpus_per_actor, training.fewest_workers * training.gpus_per_worker)


def _join(config: PipelineConfig, address: str) -> Finding:
    """Connect to the cluster, which must let nobody in who has no token."""
    try:
        cluster.connect(config.ray.address)
    except cluster.ClusterError as error:
        return Finding("Ray", str(error), "`ray status` on the head says more")
    from ray._private.authentication.authentication_utils import is_token_auth_enabled

    if not is_token_auth_enabled():
        return Finding(
            "Ray",
            f"{address} answers without a token: whoever reaches its ports can run code on it",
            "set RAY_AUTH_MODE=token in the head's shell and in this one, `ray get-auth-token --generate`, start anew",
        )
    return Finding("Ray", f"{address} answers, with token authentication")


@contextmanager
def _probes() -> Iterator[dict[str, tuple[dict[str, Any], Any]]]:
    """An actor on every machine: the machine's number -> what Ray says about it, and the actor."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    actor = ray.remote(Probe)
    probes = {}
    for node in ray.nodes():
        if node["Alive"]:
            here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            options = {"num_cpus": 0, "scheduling_strategy": here, "runtime_env": {"env_vars": _SEES_GPUS}}
            probes[node["NodeID"]] = (node, actor.options(**options).remote())
    try:
        yield probes
    finally:
        for _, probe in probes.values():
            ray.kill(probe)


def _asked(
    probes: dict[str, tuple[dict[str, Any], Any]], work_dir: Path, addresses: Sequence[str]
) -> tuple[list[NodeFacts], Offsets, dict[str, float], list[str]]:
    """Ask every machine: facts, clocks, GPUs that Ray has for it, and the machines that did not answer."""
    import ray
    from ray.exceptions import GetTimeoutError, RayError

    answers = {number: probe.facts.remote(work_dir, addresses) for number, (_, probe) in probes.items()}
    nodes: list[NodeFacts] = []
    offsets: Offsets = {}
    promised: dict[str, float] = {}
    lost = []
    for number, (node, probe) in probes.items():
        try:
            facts = ray.get(answers[number], timeout=_NODE_SECONDS)
            offsets[facts.node] = _offset(lambda clock=probe.clock: ray.get(clock.remote(), timeout=_NODE_SECONDS))
        except (RayError, GetTimeoutError) as error:
            lost.append(f"{node['NodeManagerHostname']} ({str(error).strip().partition(chr(10))[0]})")
            continue
        nodes.append(facts)
        promised[facts.node] = node["Resources"].get("GPU", 0.0)
    return nodes, offsets, promised, lost


def _answers(machines: int, lost: list[str]) -> Finding:
    if lost:
        return Finding(
            "machines", f"{', '.join(lost)} did not answer", "see the logs in /tmp/ray there, or replace them"
        )
    return Finding("machines", f"{machines} of {machines} answer")


def _offset(clock: Any) -> tuple[float, float]:
    """Seconds that another clock is ahead, and how far that may be off: the round trip that took least time tells."""
    trips = []
    for _ in range(_CLOCK_ROUNDS):
        began = time.time()
        there = clock()
        ended = time.time()
        trips.append(((ended - began) / 2, there - (began + ended) / 2))
    doubt, ahead = min(trips)
    return ahead, doubt


def _tracking(uri: str, machines: int) -> tuple[Finding, Offsets]:
    """Ask MLflow for an experiment, as whoever runs this; the answer of a server tells its clock too."""
    server = "infra/mlflow/compose.yaml starts a server"
    try:
        check_tracking(uri)
    except ConfigError as error:
        return Finding("MLflow", str(error), server), {}
    if uri.startswith("sqlite:"):
        if machines > 1:
            return Finding("MLflow", f"{uri} is a file, and there are {machines} machines", server), {}
        if not Path(uri.removeprefix("sqlite:///")).is_file():
            return Finding("MLflow", f"{uri} is not there yet; the first run makes it"), {}
    offsets = _server_clock(uri) if uri.startswith("http") else {}
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "15")
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    try:
        MlflowClient(uri).search_experiments(max_results=1)
    except MlflowException as error:
        reason = str(error).strip().partition("\n")[0]
        return Finding("MLflow", f"{uri} refuses: {reason}", _remedy(reason)), offsets
    return Finding("MLflow", f"{uri} answers"), offsets


def _remedy(reason: str) -> str:
    if "401" in reason or "authenticat" in reason.lower():
        return "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, on every machine"
    if "403" in reason or "host" in reason.lower():
        return "add the name in this address to MLFLOW_SERVER_ALLOWED_HOSTS of the server, or ask for the permission"
    return "see the server's log; `mlflow db upgrade` where the server is newer than its database"


def _server_clock(uri: str) -> Offsets:
    try:
        began = time.time()
        with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=_SECONDS) as answer:
            told = answer.headers.get("Date")
        ended = time.time()
    except urllib.error.HTTPError as error:
        told, ended = error.headers.get("Date"), time.time()
    except OSError:  # has just answered; whatever this is, it is not about clocks
        return {}
    if told is None:
        return {}
    # The header knows whole seconds.
    ahead = email.utils.parsedate_to_datetime(told).timestamp() + 0.5 - (began + ended) / 2
    return {"MLflow's server": (ahead, 0.5 + (ended - began) / 2)}


if __name__ == "__main__":
    sys.exit(main())

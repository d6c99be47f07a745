"""Check everything a run depends on, on every machine, and print a remedy for each problem.

    python -m infra.doctor --config pipelines/config/data/flickr8k.yaml

One line for each check; exit status 1 if one fails. With a cluster (the configuration's or that of RAY_ADDRESS) each
of its machines is checked, otherwise this machine. Nothing is started, and nothing is left behind.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from infra.checks import Finding, NodeFacts, check_disk, check_gpus, check_storage, check_versions, node_facts
from pipelines.config import ConfigError, PipelineConfig, load_config
from pipelines.runtime import cluster, ray_internals
from pipelines.runtime.cli import config_parser, guarded, say
from pipelines.stages.preflight import check_tracking
from pipelines.tracking.client import TrackingError, connect, database_of, outages, reason_of

_NODE_SECONDS = 120.0

# Ray hides the GPUs from tasks that request none.
_SEES_GPUS = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each check; return 0 if all pass, otherwise 1."""
    options = config_parser().parse_args(arguments)
    try:
        config = load_config(options.config, options.set)
    except ConfigError as error:
        say(Finding("configuration", str(error), "correct the file and run this again").line())
        return 1
    failures = 0
    for finding in examine(config):
        say(finding.line())
        sys.stdout.flush()
        failures += not finding.passed
    return 1 if failures else 0


def examine(config: PipelineConfig) -> Iterator[Finding]:
    """Check everything that the configuration refers to, one finding after the other."""
    yield Finding("configuration", f"{config.name}, preset {config.preset}")
    addresses = [address for address in (config.storage.address, config.tracking.artifacts) if address is not None]
    nodes = [node_facts(config.work_dir, addresses)]
    registered: dict[str, float] = {}
    address = cluster.cluster_address(config.ray.address)
    if address is None:
        yield Finding("Ray", "no cluster is configured; jobs start one on this machine")
    else:
        yield (joined := _join(config, address))
        if joined.passed:
            others, registered, lost = _collect(config.work_dir, addresses)
            nodes += others
            if lost:
                remedy = "see the logs in /tmp/ray there, or replace them"
                yield Finding("machines", f"{', '.join(lost)} did not answer", remedy)
            else:
                yield Finding("machines", f"{len(others)} of {len(others)} answer")
    yield check_versions(nodes)
    features, training = config.features, config.training
    wanted = max(features.actors * features.gpus_per_actor, training.fewest_workers * training.gpus_per_worker)
    yield check_gpus(nodes[1:] or nodes, wanted, registered)
    yield check_disk(nodes, (config.storage.cache_gb or 0.0) * 1e9)
    yield check_storage(nodes, addresses)
    yield _tracking(config.tracking_uri, len(registered))


def _join(config: PipelineConfig, address: str) -> Finding:
    try:
        cluster.connect(config.ray.address)
    except cluster.ClusterError as error:
        return Finding("Ray", str(error), "`ray status` on the head says more")
    if not ray_internals.requires_token():
        return Finding(
            "Ray",
            f"{address} answers without a token: anyone who reaches its ports can run code on it",
            "set RAY_AUTH_MODE=token in the head's shell and in this one, `ray get-auth-token --generate`, restart it",
        )
    return Finding("Ray", f"{address} answers, with token authentication")


def _collect(work_dir: Path, addresses: Sequence[str]) -> tuple[list[NodeFacts], dict[str, float], list[str]]:
    """Return every machine's facts, the GPUs that Ray has registered there, and the machines that did not answer."""
    answers = []
    for node in filter(lambda node: node["Alive"], ray.nodes()):
        this_node = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        task = ray.remote(node_facts).options(
            num_cpus=0, max_retries=0, scheduling_strategy=this_node, runtime_env={"env_vars": _SEES_GPUS}
        )
        answers.append((node, task.remote(work_dir, addresses)))
    nodes: list[NodeFacts] = []
    registered: dict[str, float] = {}
    lost = []
    for node, answer in answers:
        try:
            nodes.append(ray.get(answer, timeout=_NODE_SECONDS))
        except (RayError, GetTimeoutError) as error:
            lost.append(f"{node['NodeManagerHostname']} ({str(error).strip().partition(chr(10))[0]})")
            continue
        registered[nodes[-1].node] = node["Resources"].get("GPU", 0.0)
    return nodes, registered, lost


def _tracking(uri: str, machines: int) -> Finding:
    server = "infra/mlflow/compose.yaml starts a server"
    try:
        check_tracking(uri)
        if (database := database_of(uri)) is not None:
            if machines > 1:
                return Finding("MLflow", f"{uri} is a file, and there are {machines} machines", server)
            if not database.is_file():
                return Finding("MLflow", f"{uri} does not exist yet; the first run creates it")
        connect(uri).search_experiments(max_results=1)
    except (ConfigError, TrackingError) as error:
        return Finding("MLflow", str(error), server)
    except outages() as error:
        reason = reason_of(error)
        return Finding("MLflow", f"{uri} refuses: {reason}", _remedy(reason))
    return Finding("MLflow", f"{uri} answers")


def _remedy(reason: str) -> str:
    if "401" in reason or "authenticat" in reason.lower():
        return "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, on every machine"
    if "403" in reason or "host" in reason.lower():
        return "add the name in this address to MLFLOW_SERVER_ALLOWED_HOSTS of the server, or ask for the permission"
    return "see the server's log; `mlflow db upgrade` if the server is newer than its database"


if __name__ == "__main__":
    sys.exit(guarded(main))

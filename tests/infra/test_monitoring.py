"""What Grafana shows and Prometheus alerts of are metrics that are exported, of pods that are there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import ray
import yaml
from prometheus_client import REGISTRY

from pipelines.serving import metrics
from pipelines.training.metrics import ON_RAY, _gauge
from tests.infra.pins import INFRA, ROOT
from tests.infra.test_kubernetes import EVERY, found

FOLDER = INFRA / "monitoring"
OBJECTS = list(yaml.safe_load_all((FOLDER / "prometheus.yaml").read_text(encoding="utf-8")))
SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "info": ["_info"], "gauge": [""]}
# Of kube-state-metrics and of KubeRay's operator.
KUBERNETES = {"kube_job_status_failed", "kube_job_status_start_time", "kube_cronjob_status_last_successful_time"}
KUBERNETES |= {"kuberay_job_deployment_status"}


def exported() -> set[str]:
    ours = {family.name + suffix for family in REGISTRY.collect() for suffix in SUFFIXES[family.type]}
    of_ray = {f"ray_{_gauge(name).info['name']}" for name in ON_RAY} | {"ray_vse_search_requests_total"}
    sources = (Path(ray.__file__).parent / "serve").rglob("*.py")
    serve = {name for path in sources for name in re.findall(r'^\s+"(serve_\w+)",$', path.read_text(), re.MULTILINE)}
    return ours | of_ray | {f"ray_{name}" for name in serve}


def names(expression: str) -> set[str]:
    """The metrics of an expression: its words but for labels, ranges, groupings, functions and operators."""
    bare = re.sub(r"\{.*?\}|\[.*?\]|\b(by|on) \(.*?\)", " ", expression)
    return set(re.findall(r"\b[a-zA-Z_]\w*\b(?!\s*\()", bare)) - {"and", "or"}


def test_every_metric_of_the_dashboard_and_the_page_is_exported() -> None:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    shown = set().union(*map(names, found(dashboard["panels"], "expr")))
    assert len(shown) >= 12
    assert shown <= exported()
    page = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("search.md", "cluster.md"))
    everything = exported() | {"vse_search_seconds"}  # a histogram, whose parts have suffixes
    documented = set(re.findall(r"`((?:ray_)?(?:vse|serve)_\w+)`", page))
    assert documented <= everything
    assert {name for name in shown if not name.startswith("process_")} <= {
        f"{name}{suffix}" for name in documented for suffix in ("", "_bucket", "_count")
    }


def test_alerts_are_of_metrics_that_are_exported() -> None:
    rules = {rule["alert"]: rule["expr"] for each in found(OBJECTS, "rules") for rule in each}
    assert set().union(*map(names, rules.values())) <= exported() | KUBERNETES
    crons = {m["metadata"]["name"] for name, m in EVERY if m["kind"] == "CronJob" and name != "mlflow.yaml"}
    (pattern,) = re.findall(r'cronjob=~"(.*?)"', rules["RetrainingMissed"])
    assert all(re.fullmatch(pattern, name) for name in crons)


def test_monitors_choose_pods_that_are_there() -> None:
    apps = {label["app"] for _, manifest in EVERY for label in found(manifest, "labels") if "app" in label}
    search, every = (spec["spec"] for spec in OBJECTS if spec["kind"] == "PodMonitor")
    assert {search["selector"]["matchLabels"]["app"], *every["selector"]["matchExpressions"][0]["values"]} <= apps
    (endpoint,) = search["podMetricsEndpoints"]
    assert endpoint["path"] == metrics.PATH
    secrets = {each["name"] for _, manifest in EVERY for each in found(manifest, "secretRef")}
    assert endpoint["authorization"]["credentials"]["name"] in secrets

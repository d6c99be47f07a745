"""What Grafana shows and Prometheus alerts of are metrics that are exported, of pods that are there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
import yaml
from prometheus_client import REGISTRY

from pipelines.serving import metrics
from pipelines.training.metrics import ON_RAY, _gauge
from tests.infra.pins import INFRA, ROOT
from tests.infra.test_kubernetes import EVERY, found

FOLDER = INFRA / "monitoring"
SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "info": ["_info"], "gauge": [""]}
# Of kube-state-metrics and of KubeRay's operator.
KUBERNETES = {"kube_job_status_failed", "kube_cronjob_status_last_successful_time", "kuberay_job_deployment_status"}


def exported() -> set[str]:
    ours = {family.name + suffix for family in REGISTRY.collect() for suffix in SUFFIXES[family.type]}
    of_ray = {f"ray_{_gauge(name).info['name']}" for name in ON_RAY} | {"ray_vse_search_requests_total"}
    sources = (Path(ray.__file__).parent / "serve").rglob("*.py")
    serve = {name for path in sources for name in re.findall(r'^\s+"(serve_\w+)",$', path.read_text(), re.MULTILINE)}
    return ours | of_ray | {f"ray_{name}" for name in serve}


def names(expression: str) -> set[str]:
    """The metrics of an expression: its words without labels, ranges, groupings, functions and operators."""
    bare = re.sub(r"\{.*?\}|\[.*?\]|\b(by|on) \(.*?\)", " ", expression)
    return set(re.findall(r"\b[a-zA-Z_]\w*\b(?!\s*\()", bare)) - {"and", "or"}


def rules() -> Iterator[dict[str, Any]]:
    for manifest in yaml.safe_load_all((FOLDER / "prometheus.yaml").read_text(encoding="utf-8")):
        if manifest["kind"] == "PrometheusRule":
            yield from (rule for group in manifest["spec"]["groups"] for rule in group["rules"])


def test_names_are_found_in_expressions() -> None:
    expression = 'histogram_quantile(0.5, sum by (le) (rate(a_bucket{p=~"/s.*"}[5m]))) > 2 * b and on (x) c'
    assert names(expression) == {"a_bucket", "b", "c"}


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
    assert set().union(*(names(rule["expr"]) for rule in rules())) <= exported() | KUBERNETES
    crons = {manifest["metadata"]["name"] for _, manifest in EVERY if manifest["kind"].endswith("CronJob")}
    (missed,) = (rule["expr"] for rule in rules() if rule["alert"] == "RetrainingMissed")
    (pattern,) = re.findall(r'cronjob=~"(.*?)"', missed)
    assert {name for name in crons if name.startswith("vse-")} == {
        name for name in crons if re.fullmatch(pattern, name)
    }


def test_monitors_choose_pods_that_are_there() -> None:
    apps = {label["app"] for _, manifest in EVERY for label in found(manifest, "labels") if "app" in label}
    monitors = [m for m in yaml.safe_load_all((FOLDER / "prometheus.yaml").read_text()) if m["kind"] == "PodMonitor"]
    search, every = (monitor["spec"] for monitor in monitors)
    assert search["selector"]["matchLabels"]["app"] in apps
    assert set(every["selector"]["matchExpressions"][0]["values"]) <= apps
    (endpoint,) = search["podMetricsEndpoints"]
    assert endpoint["path"] == metrics.PATH
    secrets = {each["name"] for _, manifest in EVERY for each in found(manifest, "secretRef")}
    assert endpoint["authorization"]["credentials"]["name"] in secrets

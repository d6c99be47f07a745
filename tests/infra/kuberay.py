"""What KubeRay's objects may hold, as far as this project's manifests use them.

KubeRay's own definitions are in no package. These are fields of its API ray.io/v1: most were read in its published
types (1.4 and older), `authOptions`, `RayCronJob` (since 1.6) and its `timeZone` (since 1.7) in its documentation. No
operator was asked. Pods are left to Kubernetes' own schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_POSITIVE = {"type": "integer", "minimum": 1}
_WHOLE = {"type": "integer", "minimum": 0}


def _object(required: list[str], properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


_POD_TEMPLATE = {"type": "object", "required": ["spec"]}
_HEAD = _object(["rayStartParams", "template"], {"rayStartParams": _TEXTS, "template": _POD_TEMPLATE})
_WORKERS = _object(
    ["groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"],
    {
        "groupName": {"type": "string"},
        "replicas": _WHOLE,
        "minReplicas": _WHOLE,
        "maxReplicas": _POSITIVE,
        "rayStartParams": _TEXTS,
        "template": _POD_TEMPLATE,
    },
)
_CLUSTER = _object(
    ["headGroupSpec", "rayVersion", "authOptions"],
    {
        "rayVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
        "authOptions": _object(["mode"], {"mode": {"const": "token"}}),
        "enableInTreeAutoscaling": {"type": "boolean"},
        "autoscalerOptions": _object([], {"idleTimeoutSeconds": _POSITIVE}),
        "headGroupSpec": _HEAD,
        "workerGroupSpecs": {"type": "array", "items": _WORKERS},
    },
)
_JOB = _object(
    ["entrypoint", "rayClusterSpec"],
    {
        "entrypoint": {"type": "string"},
        "backoffLimit": _WHOLE,
        "activeDeadlineSeconds": _POSITIVE,
        "shutdownAfterJobFinishes": {"type": "boolean"},
        "ttlSecondsAfterFinished": _WHOLE,
        "rayClusterSpec": _CLUSTER,
    },
)
_CRON_JOB = _object(
    ["schedule", "jobTemplate"],
    {
        "schedule": {"type": "string", "pattern": r"^\S+( \S+){4}$"},
        "timeZone": {"type": "string"},
        "suspend": {"type": "boolean"},
        "jobTemplate": _JOB,
    },
)
SPECS = {"RayCluster": _CLUSTER, "RayJob": _JOB, "RayCronJob": _CRON_JOB}


def schema(kind: str) -> dict[str, Any]:
    """The JSON schema of an object."""
    metadata = {"type": "object", "anyOf": [{"required": ["name"]}, {"required": ["generateName"]}]}
    properties = {"apiVersion": {"const": "ray.io/v1"}, "kind": {"const": kind}, "metadata": metadata}
    return _object(["apiVersion", "kind", "metadata", "spec"], {**properties, "spec": SPECS[kind]})


def cluster_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """The cluster that an object describes."""
    spec = manifest["spec"]
    spec = spec.get("jobTemplate", spec)
    cluster: dict[str, Any] = spec.get("rayClusterSpec", spec)
    return cluster


def pods_of(manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The pods of head and workers, as objects of Kubernetes."""
    cluster = cluster_of(manifest)
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        template = group["template"]
        metadata = {"name": "ray", **template.get("metadata", {})}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}

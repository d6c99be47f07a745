"""References between the objects of infra/kubernetes; `make lint` checks each against its schema."""

from __future__ import annotations

import importlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from pipelines.config import PipelineConfig, load_config
from pipelines.serving.deployment import ServiceArguments
from tests.infra.pins import INFRA, ROOT, constraints, image_tag

FOLDER = INFRA / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
KUBERNETES = "1.34"

Manifest = dict[str, Any]


def manifests(path: Path) -> list[Manifest]:
    return [item for item in yaml.safe_load_all(path.read_text(encoding="utf-8")) if item is not None]


def one(name: str) -> Manifest:
    (manifest,) = manifests(FOLDER / name)
    return manifest


EVERY = [(path.name, manifest) for path in FILES for manifest in manifests(path)]
RAY = [(name, manifest) for name, manifest in EVERY if manifest["apiVersion"] == "ray.io/v1"]
PLAIN = [(name, manifest) for name, manifest in EVERY if manifest["apiVersion"] != "ray.io/v1"]


def names(pairs: list[tuple[str, Manifest]]) -> list[str]:
    return [f"{name}-{manifest['kind']}" for name, manifest in pairs]


def found(value: Any, key: str) -> Iterator[Any]:
    """Every value under a key, at any depth."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name == key:
                yield item
            yield from found(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from found(item, key)


def cluster_of(manifest: Manifest) -> Manifest:
    """The cluster that an object of KubeRay describes."""
    spec = manifest["spec"]
    spec = spec.get("jobTemplate", spec)
    cluster: Manifest = spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec
    return cluster


def pods_of(manifest: Manifest) -> Iterator[Manifest]:
    """The pods of head and workers, as objects of Kubernetes."""
    cluster = cluster_of(manifest)
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        template = group["template"]
        metadata = {"name": "ray", **template.get("metadata", {})}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def test_the_tracking_server_does_not_read_the_address_of_its_service_as_its_port() -> None:
    """Kubernetes sets MLFLOW_PORT to an address in every pod of a namespace with a Service called mlflow."""
    pods = [
        manifest["spec"]["template"]["spec"]
        for name, manifest in EVERY
        if name == "mlflow.yaml" and manifest["kind"] == "Deployment"
    ]
    assert "MLFLOW_PORT" in (INFRA / "mlflow" / "serve.sh").read_text()
    assert [pod["enableServiceLinks"] for pod in pods] == [False] * len(pods)
    assert pods


def test_no_image_holds_the_secrets_of_its_builder() -> None:
    """A pattern without **/ is of the root alone, and .env lies next to the Compose file."""
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert "**/.env" in ignored
    assert not [pattern for pattern in ignored if pattern.startswith((".env", "*.")) and pattern != "*.egg-info/"]


@pytest.mark.parametrize(("name", "manifest"), RAY, ids=names(RAY))
def test_kubernetes_knows_every_field_of_a_cluster_s_pods(name: str, manifest: Manifest) -> None:
    """The linter does not look into KubeRay's objects."""
    for pod in pods_of(manifest):
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def test_there_are_the_objects_that_the_page_promises() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert {path.name for path in FILES} == set(re.findall(r"^\| `([\w-]+\.yaml)`", readme, re.MULTILINE))
    assert {manifest["kind"] for _, manifest in RAY} == {"RayCluster", "RayJob", "RayCronJob", "RayService"}


def scheduled_job() -> Manifest:
    """The job of the schedules, made as cronjob.yaml says."""
    command = re.search(r"^#   (sed .*rayjob\.yaml) \|$", (FOLDER / "cronjob.yaml").read_text(), re.MULTILINE)
    assert command is not None
    made = subprocess.run(command[1].split(), cwd=ROOT, capture_output=True, text=True, check=True).stdout
    manifest: Manifest = yaml.safe_load(made)
    return manifest


def test_job_schedule_and_cluster_are_the_same() -> None:
    job = one("rayjob.yaml")
    assert one("raycronjob.yaml")["spec"]["jobTemplate"] == scheduled_job()["spec"]
    assert {**scheduled_job()["spec"], "entrypoint": job["spec"]["entrypoint"]} == job["spec"]
    assert one("raycluster.yaml")["spec"] == job["spec"]["rayClusterSpec"]


@pytest.mark.parametrize(("name", "manifest"), RAY, ids=names(RAY))
def test_versions_are_those_of_the_images(name: str, manifest: Manifest) -> None:
    cluster = cluster_of(manifest)
    assert cluster["rayVersion"] == constraints()["ray"]
    images = [image.partition("/")[2] for image in found(cluster, "image")]
    assert images == [image_tag("cpu"), image_tag("gpu")]


def test_a_job_lives_through_the_loss_of_a_machine(tmp_path: Path) -> None:
    """As tests/integration/seams/test_second_machine.py runs it: with this command, configuration and work folder."""
    config = job_config(tmp_path)
    assert config.storage.address is not None
    assert str(config.storage.address).startswith("s3://")
    assert config.tracking_uri.startswith("http://")
    for job in (one("rayjob.yaml")["spec"], scheduled_job()["spec"], one("raycronjob.yaml")["spec"]["jobTemplate"]):
        assert job["backoffLimit"] > 0
        assert "--wait" in job["entrypoint"].split()  # for the lease of the head that was lost
        (group,) = job["rayClusterSpec"]["workerGroupSpecs"]
        assert 1 < config.training.most_workers <= group["maxReplicas"]
        for pod in pods_of({"spec": job}):
            (container,) = pod["spec"]["containers"]
            folder = next(each["value"] for each in container["env"] if each["name"] == "VSE_WORK_DIR")
            (mount,) = (each["name"] for each in container["volumeMounts"] if each["mountPath"] == folder)
            (volume,) = (each for each in pod["spec"]["volumes"] if each["name"] == mount)
            assert volume["ephemeral"]["volumeClaimTemplate"]["spec"]["accessModes"] == ["ReadWriteOnce"]
            assert "vse-storage" in [source["secretRef"]["name"] for source in container["envFrom"]]


def test_the_service_names_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.serving.deployment.pin", lambda model, _: f"{model}/4")
    schema = ServeDeploySchema(**yaml.safe_load(one("rayservice.yaml")["spec"]["serveConfigV2"]))
    (application,) = schema.applications
    module, _, function = application.import_path.partition(":")
    built = getattr(importlib.import_module(module), function)(ServiceArguments(**application.args))
    ingress = built._bound_deployment
    replicas = ingress.init_args[0]._bound_deployment
    assert (ingress.name, replicas.name) == ("ingress", "search")
    assert replicas.init_args[0] == "scenes/4"  # not a name that means another version later
    (scaled,) = application.deployments
    assert scaled.name == replicas.name
    assert scaled.autoscaling_config["max_replicas"] == application.args["max_replicas"]
    # Its own keys, which read alone; none of those that train.
    assert {secret["name"] for secret in found(one("rayservice.yaml"), "secretRef")} == {"vse-search"}
    assert not list(found(one("rayservice.yaml"), "secretKeyRef"))


def job_config(folder: Path) -> PipelineConfig:
    """The configuration that the jobs mount."""
    text = one("job-config.yaml")["data"]["job.yaml"]
    path = folder / "job.yaml"
    path.write_text(text.replace("/opt/vse/", f"{ROOT}/"))
    return load_config(path)


def test_the_mounted_configuration_is_one(tmp_path: Path) -> None:
    config = job_config(tmp_path)
    # All actors that extract, and then the worker that trains, find room on one machine of the group with GPUs.
    (group,) = one("raycluster.yaml")["spec"]["workerGroupSpecs"]
    resources = group["template"]["spec"]["containers"][0]["resources"]
    gpus, cpus = int(resources["limits"]["nvidia.com/gpu"]), int(resources["requests"]["cpu"])
    assert 0 < config.features.actors * config.features.gpus_per_actor <= gpus
    assert config.features.actors * config.features.cpus_per_actor <= cpus
    assert config.training.gpus_per_worker == gpus
    service = next(m for _, m in PLAIN if m["kind"] == "Service" and m["metadata"]["name"] == "mlflow")
    assert config.tracking_uri == f"http://mlflow:{service['spec']['ports'][0]['port']}"


def test_the_schedule_creates_the_job_of_the_other_file() -> None:
    (cron,) = (m for m in manifests(FOLDER / "cronjob.yaml") if m["kind"] == "CronJob")
    pod = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == ["create", "--filename=/etc/vse/rayjob.yaml"]
    assert container["volumeMounts"][0]["mountPath"] == "/etc/vse"
    assert "--from-file=rayjob.yaml=/dev/stdin" in (FOLDER / "cronjob.yaml").read_text(encoding="utf-8")
    # Every start has a name of its own, or the second one would be refused.
    assert "name" not in one("rayjob.yaml")["metadata"]
    (role,) = (m for m in manifests(FOLDER / "cronjob.yaml") if m["kind"] == "Role")
    assert role["rules"] == [{"apiGroups": ["ray.io"], "resources": ["rayjobs"], "verbs": ["create"]}]
    assert pod["serviceAccountName"] == cron["metadata"]["name"]


def test_a_night_in_one_pod_is_repeated_only_if_that_can_help() -> None:
    job = one("retrain.yaml")["spec"]["jobTemplate"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    fails, ignored = job["podFailurePolicy"]["rules"]
    table = (ROOT / "docs" / "retraining.md").read_text(encoding="utf-8")
    statuses = [int(status) for status in re.findall(r"^\| failed[^|]*\| (\d+)", table, re.MULTILINE)]
    exits = {"containerName": container["name"], "operator": "In", "values": statuses}
    assert fails == {"action": "FailJob", "onExitCodes": exits}
    assert ignored == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert (container["image"].partition("/")[2], container["args"][1]) == (image_tag("gpu"), "pipelines/retrain.py")


def test_secrets_are_made_by_the_page_and_are_in_no_file() -> None:
    used = {
        ref["name"] for _, manifest in EVERY for key in ("secretRef", "secretKeyRef") for ref in found(manifest, key)
    }
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert used == set(re.findall(r"create secret generic ([\w-]+)", readme))
    assert not [manifest for _, manifest in EVERY if manifest["kind"] == "Secret"]


def all_pods() -> Iterator[tuple[str, Manifest]]:
    """The specifications of all pods, those of KubeRay's objects too, with the file that they are in."""
    for name, manifest in EVERY:
        yield from ((name, spec) for spec in found(manifest, "spec") if "containers" in spec)


def test_no_container_has_rights_that_it_does_not_need() -> None:
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    files = set()
    for name, pod in all_pods():
        files.add(name)
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True, name
        assert context["runAsUser"] > 0, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            assert container["securityContext"] == restricted, (name, container["name"])
        # Only what creates a job from a schedule speaks to Kubernetes, with a role for that alone.
        assert pod["automountServiceAccountToken"] is (pod.get("serviceAccountName") == "vse-nightly"), name
    assert files == {name for name, _ in EVERY} - {"job-config.yaml", "network.yaml"}


@pytest.mark.parametrize(("name", "manifest"), RAY, ids=names(RAY))
def test_of_a_cluster_the_autoscaler_alone_may_ask_kubernetes_for_machines(name: str, manifest: Manifest) -> None:
    cluster = cluster_of(manifest)
    options = cluster["autoscalerOptions"]
    assert options["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    (mount,) = options["volumeMounts"]
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    head, *_ = pods_of(manifest)
    (token,) = [volume for volume in head["spec"]["volumes"] if volume["name"] == mount["name"]]
    assert sorted(path for path in found(token, "path") if isinstance(path, str)) == ["ca.crt", "namespace", "token"]
    for pod in pods_of(manifest):
        (container,) = pod["spec"]["containers"]
        assert mount["name"] not in {each["name"] for each in container["volumeMounts"]}


def test_policies_protect_every_open_port_and_let_in_pods_that_are_there() -> None:
    pods = {label["app"] for _, manifest in EVERY for label in found(manifest, "labels") if "app" in label}
    policies = [manifest["spec"] for _, manifest in PLAIN if manifest["kind"] == "NetworkPolicy"]
    protected = {policy["podSelector"]["matchLabels"]["app"] for policy in policies}
    assert protected == {"postgres", "mlflow", "vse-training", "vse-search"}
    assert all("Ingress" in policy["policyTypes"] for policy in policies)
    admitted = [labels["app"] for labels in found(policies, "matchLabels") if "app" in labels]
    assert set(admitted).union(*found(policies, "values")) <= pods

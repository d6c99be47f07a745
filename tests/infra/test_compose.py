"""Settings that the Compose file must and must not have; `make lint` checks it against the published schema."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.infra.pins import INFRA, constraints

PATH = INFRA / "mlflow" / "compose.yaml"
TEXT = PATH.read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)


def test_only_this_machine_reaches_it() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:5000:5000"]


def test_passwords_come_from_outside_and_must_be_there() -> None:
    example = (INFRA / "mlflow" / "env.example").read_text(encoding="utf-8")
    offered = set(re.findall(r"^([A-Z_]+)=", example, re.MULTILINE))
    variables = dict(re.findall(r"\$\{([A-Z_]+)(:[-?])", TEXT))
    assert set(variables) == offered
    secret = {name for name in variables if "PASSWORD" in name or "SECRET" in name or "KEY" in name}
    assert {variables[name] for name in secret} == {":?"}
    assert all(f"{name}=\n" in example for name in secret)


def test_the_server_gets_what_its_script_asks_for() -> None:
    script = (INFRA / "mlflow" / "serve.sh").read_text(encoding="utf-8")
    asked = re.search(r"for name in ([A-Z_ \\\n]+); do", script)
    assert asked is not None
    assert set(asked[1].replace("\\", " ").split()) <= set(COMPOSE["services"]["mlflow"]["environment"])
    assert "--app-name basic-auth" in script


def test_images_are_pinned_and_the_server_is_our_mlflow() -> None:
    images = {name: service["image"] for name, service in COMPOSE["services"].items()}
    assert images["mlflow"] == images["backup"] == f"vse-mlflow:{constraints()['mlflow']}"
    dockerfile = (INFRA / "mlflow" / "Dockerfile").read_text(encoding="utf-8")
    (client,) = re.findall(r"postgresql-client-(\d+)", dockerfile)
    assert re.fullmatch(rf"postgres:{client}\.\d+-\w+@sha256:\w{{64}}", images["postgres"])
    assert (PATH.parent / COMPOSE["services"]["mlflow"]["build"]["context"]).resolve() == INFRA.parent


def test_no_container_has_rights_that_it_does_not_need() -> None:
    for name, service in COMPOSE["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
    # The other image sets its user itself; postgres' begins as root.
    assert COMPOSE["services"]["postgres"]["user"] == "999:999"

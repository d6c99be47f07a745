"""The undocumented parts of Ray that we stand on are as we need them."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ray.train.v2._internal import constants

from pipelines.runtime import ray_internals

CHOSEN = """
import importlib
import logging
import os
import ray
from pipelines.runtime import ray_internals
ray_internals.init_local(num_cpus=1, object_store_memory=80_000_000, include_dashboard=False)
assert ray.get_runtime_context().gcs_address.rpartition(":")[2] == os.environ["RAY_ADDRESS"].rpartition(":")[2]
ray.shutdown()
ray_internals.forget_local()
ray_internals.forget_local()
assert "RAY_ADDRESS" not in os.environ
"""


@pytest.mark.integration
def test_a_local_cluster_has_the_chosen_address() -> None:
    subprocess.run([sys.executable, "-c", CHOSEN], check=True, timeout=120)


def test_a_fixed_cluster_is_not_autoscaled(ray_cluster: str) -> None:
    assert not ray_internals.is_autoscaled()


@pytest.mark.parametrize(("mode", "answer"), [("disabled", "False"), ("token", "True")])
def test_the_authentication_mode_is_read(mode: str, answer: str) -> None:
    program = "from pipelines.runtime import ray_internals; print(ray_internals.requires_token())"
    environment = {"RAY_AUTH_MODE": mode, "PYTHONPATH": ":".join(filter(None, sys.path))}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split()[-1] == answer


PROTECTED = """
from pathlib import Path
from pipelines.runtime import ray_internals
from ray._private.authentication import authentication_token_setup as ray_setup
ray_internals.protect_token()
ray_setup.enable_token_auth_by_default()
ray_setup.ensure_token_if_auth_enabled()  # as in ray.init
path = Path.home() / ".ray" / "auth_token"
assert len(path.read_text()) == 64
print(oct(path.stat().st_mode))
"""


@pytest.mark.parametrize("before", ["no file", "a file that all may read"])
def test_the_file_with_the_token_is_its_owners_alone(tmp_path: Path, before: str) -> None:
    """Ray itself writes it with mode 644."""
    if before != "no file":
        token = tmp_path / ".ray" / "auth_token"
        token.parent.mkdir()
        token.write_text("a" * 64)
        token.chmod(0o644)
    environment = {"HOME": str(tmp_path), "PYTHONPATH": ":".join(filter(None, sys.path))}
    run = subprocess.run([sys.executable, "-c", PROTECTED], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split()[-1] == "0o100600"


def test_a_default_is_not_warned_of_and_its_opposite_is(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = importlib.import_module("ray._private.authentication.authentication_token_setup")
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", records.append)
    # Other tests may have started Ray in this process, which sets up its loggers.
    for name, value in {"filters": [], "handlers": [handler], "level": logging.INFO, "disabled": False}.items():
        monkeypatch.setattr(setup.logger, name, value)
    setup._warn_token_auth_enabled()
    assert len(records) == 1
    ray_internals.quiet_token_notice()
    setup._warn_token_auth_enabled()
    setup._warn_token_auth_disabled()
    told = [record.getMessage().partition(" for")[0] for record in records[1:]]
    assert told == ["Token authentication is disabled"]


def test_ray_serve_reads_the_settings_when_it_is_imported() -> None:
    names = ", ".join(f"constants.{name}" for name in ray_internals.SERVE_SETTINGS)
    program = f"from ray.serve._private import constants; print({names})"
    environment = {**os.environ, **ray_internals.SERVE_SETTINGS}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.split()[-2:] == ["False", "True"]


def test_ray_train_hands_the_settings_to_its_processes() -> None:
    names = ("HEALTH_CHECK_INTERVAL_S", "COLLECTIVE_TIMEOUT_S", "ENABLE_PREEMPTION_WATCHER")
    variables = tuple(getattr(constants, f"{name}_ENV_VAR") for name in names)
    assert variables == tuple(f"RAY_TRAIN_{name}" for name in names)
    assert set(variables) <= set(constants.ENV_VARS_TO_PROPAGATE)

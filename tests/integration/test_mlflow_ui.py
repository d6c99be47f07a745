"""MLflow's pages in a real browser: what a pipeline logs and registers is seen by who looks at the team's server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from matplotlib.figure import Figure

from pipelines.config import load_config
from pipelines.registry.models import RegisteredVersion, describe_version, register_bundle
from pipelines.tracking import PipelineRuns
from tests.integration import browser, mlflow_server, postgres, s3_server
from tests.pipelines.tiny_bundle import write_tiny_bundle

pytestmark = pytest.mark.timeout(600)

USER, PASSWORD = "admin", "a long password"
STEPS, RSUM = 20, 119.0
DESCRIPTION = "Trained on six scenes, for nobody to use."
# Buttons over MLflow's table of runs: one that shows the runs below a run, and one that chooses columns.
EXPAND = "document.querySelector('[role=gridcell] button[data-component-id*=runnamecell]')"
COLUMNS = "[...document.querySelectorAll('button')].find((button) => button.innerText === 'Columns')"


@dataclass(frozen=True)
class Logged:
    """What was logged, and where its pages are.

    Attributes:
        address: of the server.
        experiment: MLflow's number of it.
        run: MLflow's number of a training's run.
        version: what was registered.
    """

    address: str
    experiment: str
    run: str
    version: RegisteredVersion


@pytest.fixture(scope="module")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3_server.Swift]:
    """A real S3 server."""
    try:
        server = s3_server.start(tmp_path_factory.mktemp("swift"))
    except s3_server.SwiftUnavailableError as error:
        pytest.skip(str(error))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def page() -> Iterator[browser.Page]:
    try:
        with browser.running() as page:
            page.resize(1600, 1000)
            page.log_in(USER, PASSWORD)
            page.remember(**browser.MLFLOW_FOR_TRAINING)
            yield page
    except browser.BrowserUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def bucket(swift: s3_server.Swift) -> Any:
    """A bucket, in boto3's words."""
    # A session of its own: the default one would remember where this server is, and later tests have another.
    session = boto3.Session(s3_server.ACCESS_KEY, s3_server.SECRET_KEY, region_name=s3_server.REGION)
    s3 = session.resource("s3", endpoint_url=swift.endpoint)
    return s3.create_bucket(Bucket="mlflow")


@pytest.fixture(scope="module")
def server(
    page: browser.Page, swift: s3_server.Swift, bucket: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a server over PostgreSQL that keeps artifacts on S3."""
    s3 = {
        "AWS_ENDPOINT_URL": swift.endpoint,
        "AWS_REGION": s3_server.REGION,
        "AWS_ACCESS_KEY_ID": s3_server.ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": s3_server.SECRET_KEY,
    }
    folder, artifacts = tmp_path_factory.mktemp("mlflow"), f"s3://{bucket.name}/team"
    try:
        with (
            postgres.running() as database,
            mlflow_server.running(database, folder, artifacts, PASSWORD, "127.0.0.1:*", **s3) as port,
        ):
            yield f"http://127.0.0.1:{port}"
    except postgres.PostgresUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def logged(server: str, tmp_path_factory: pytest.TempPathFactory) -> Logged:
    """A training with curves and a picture, and a registered model, logged as the pipeline does."""
    folder = tmp_path_factory.mktemp("pipeline")
    config = load_config(None, [f"work_dir={folder}", f"tracking={{uri: '{server}', experiment: tiny}}"])
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MLFLOW_TRACKING_USERNAME", USER)
        patched.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
        with PipelineRuns(config, "0" * 64) as runs, runs.parent:
            with runs.child("train") as tracker:
                for step in range(STEPS):
                    tracker.log_metrics({"train/loss": 30 / (1 + step), "dev/rsum": RSUM - STEPS + 1 + step}, step)
                figure = Figure()
                figure.subplots().plot(range(STEPS))
                tracker.log_figure(figure, "plots/recall.png")
            with runs.child("register") as register, register.active():
                bundle = write_tiny_bundle(folder / "bundle")
                version = register_bundle(bundle, "tiny", "abc", {"vse.seed": "0"}, {"dev/rsum": RSUM})
                describe_version("tiny", version.version, DESCRIPTION, server)
    return Logged(server, tracker.handle.experiment_id, tracker.run_id, version)


def test_the_list_of_runs_has_their_metrics(page: browser.Page, logged: Logged) -> None:
    page.open(f"{logged.address}/#/experiments/{logged.experiment}/runs")
    page.wait_for(f"{EXPAND} && {COLUMNS}")
    page.evaluate(f"{EXPAND}.click()")  # the stages below the pipeline
    page.evaluate(f"{COLUMNS}.click()")
    page.wait_for("document.querySelector('[title=\"dev/rsum\"]')")
    page.evaluate("document.querySelector('[title=\"dev/rsum\"]').click()")
    cells = "[...document.querySelectorAll('[role=gridcell][col-id=\"metrics.`dev/rsum`\"]')]"
    page.wait_for(f"{cells}.filter((cell) => cell.innerText === '{RSUM:g}').length === 2")


def test_a_metric_has_its_curve(page: browser.Page, logged: Logged) -> None:
    page.open(f"{logged.address}/#/experiments/{logged.experiment}/runs/{logged.run}/model-metrics")
    points = "[...document.querySelectorAll('.js-plotly-plot')].map((plot) => plot.querySelectorAll('.point').length)"
    page.wait_for(f"String({points}) === '{STEPS},{STEPS}'")
    assert "train (train/loss)" in page.evaluate("document.body.innerText")


def test_a_picture_is_shown(page: browser.Page, logged: Logged) -> None:
    page.open(f"{logged.address}/#/experiments/{logged.experiment}/runs/{logged.run}/artifacts/plots/recall.png")
    page.wait_for("[...document.querySelectorAll('img')].some((image) => image.naturalWidth > 300)")


def test_a_registered_version_says_what_it_is(page: browser.Page, logged: Logged) -> None:
    page.open(f"{logged.address}/#/models/{logged.version.name}/versions/{logged.version.version}")
    for text in (DESCRIPTION, "challenger", "vse.seed"):
        page.wait_for(f"document.body.innerText.includes({text!r})")


def test_artifacts_are_on_s3_and_a_model_is_few_of_them(logged: Logged, bucket: Any) -> None:
    names = [entry.key for entry in bucket.objects.all()]
    assert f"team/{logged.experiment}/{logged.run}/artifacts/plots/recall.png" in names
    # The server takes them one by one.
    assert 10 < len([name for name in names if f"/{logged.version.model_id}/" in name]) < 40


def test_no_page_has_complained(page: browser.Page, logged: Logged) -> None:
    assert page.problems == []

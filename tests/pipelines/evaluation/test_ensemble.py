"""Several models evaluated together; their own evaluations are given, as the stage leaves them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from mlflow import MlflowClient

from pipelines.config import PipelineConfig, load_config
from pipelines.evaluation import ensemble, evaluator
from pipelines.evaluation.ensemble import Member, evaluate_members
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.stage import StageDir, StageError, StagePlan, StageReport
from pipelines.stages import extract
from preprocessing.datasets import Caption, Record
from vse_core.evaluation import evaluate_ensemble, evaluate_retrieval

IMAGES = 12


def gallery_of(seed: int, views: int, dim: int, order: list[int]) -> Gallery:
    """Noisy embeddings of twelve images and two captions each, in some order."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(IMAGES, views, dim, generator=generator)
    texts = images[:, 0].repeat_interleave(2, dim=0) + 1.5 * torch.randn(2 * IMAGES, dim, generator=generator)
    records = [
        Record(
            str(image), "", "dev", tuple(Caption(f"{seed}-{image}-{c}", f"caption {c} of {image}") for c in range(2))
        )
        for image in range(IMAGES)
    ]
    captions = [2 * image + c for image in order for c in range(2)]
    return Gallery(images[order], texts[captions], tuple(records[image] for image in order))


@pytest.fixture
def config(work_dir: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineConfig:
    plan = StagePlan("extract", "fingerprint of features", work_dir, 1, 1, "shards", "")
    monkeypatch.setattr(extract, "plan", lambda _: plan)
    return load_config(None, [f"work_dir={work_dir}"])


@pytest.fixture
def members(config: PipelineConfig, work_dir: Path, monkeypatch: pytest.MonkeyPatch) -> list[Member]:
    """Three models, whose galleries differ in width, number of views and order."""
    galleries = {
        Path("a"): gallery_of(1, 1, 8, list(range(IMAGES))),
        Path("b"): gallery_of(2, 3, 6, list(reversed(range(IMAGES)))),
        Path("c"): gallery_of(3, 1, 8, list(range(IMAGES - 1))),
    }

    def evaluated(_: PipelineConfig, model: Path) -> StageReport:
        stage = StageDir(work_dir, evaluator.NAME, f"fingerprint of {model}")
        galleries[model].save(stage.create() / evaluator.GALLERY)
        counts = [2] * len(galleries[model].records)
        result = evaluate_retrieval(galleries[model].images_BKD, galleries[model].texts_CD, counts)
        stage.complete({"metrics": result.as_dict(), "summary": f"{model} alone"})
        return StageReport(evaluator.NAME, stage.path, f"{model} alone")

    monkeypatch.setattr(ensemble, "evaluate_model", evaluated)
    return [Member(str(model), config, model) for model in galleries]


def test_rows_of_the_members_and_of_the_mean_of_their_similarities(
    members: list[Member], config: PipelineConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    report = evaluate_members(members[:2])
    first, second = gallery_of(1, 1, 8, list(range(IMAGES))), gallery_of(2, 3, 6, list(range(IMAGES)))
    expected = evaluate_ensemble([(g.images_BKD, g.texts_CD) for g in (first, second)], 2)
    alone = [evaluate_retrieval(g.images_BKD, g.texts_CD, 2) for g in (first, second)]
    assert report.summary.startswith(f"2 models together: dev RSUM {expected.rsum:.1f} (")
    assert report.summary.endswith(") over 12 images and 24 captions")

    rows = {line.split("│")[1].strip(): line for line in capsys.readouterr().out.splitlines() if line.startswith("│")}
    for name, result in zip(["a", "b", "ensemble"], [*alone, expected], strict=True):
        assert f"{result.rsum:.1f}" in rows[name]

    client = MlflowClient(config.tracking_uri)
    experiment = client.get_experiment_by_name(config.experiment)
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["dev/rsum"] == pytest.approx(expected.rsum)
    assert [run.data.metrics[f"member_{n}/rsum"] for n in (1, 2)] == pytest.approx([each.rsum for each in alone])
    assert run.data.tags["vse.models"] == "a b"

    again = evaluate_members(members[:2])
    assert again.directory == report.directory
    assert len(client.search_runs([experiment.experiment_id])) == 1


def test_one_model_is_its_own_evaluation(members: list[Member]) -> None:
    assert evaluate_members(members[:1]).summary == "a alone"
    assert not (members[0].config.work_dir / ensemble.NAME).exists()


def test_models_of_other_images_are_refused(members: list[Member]) -> None:
    with pytest.raises(
        StageError, match=r"a and c cannot be put side by side: .* 1 are only in the first, such as 11; give"
    ):
        evaluate_members([members[0], members[2]])


def test_protocols_must_agree(members: list[Member]) -> None:
    folded = replace(members[1], config=load_config(None, ["evaluation.folds=2"]))
    with pytest.raises(StageError, match=r"evaluation\.folds differs between the configurations: 1 and 2; make it one"):
        evaluate_members([members[0], folded])

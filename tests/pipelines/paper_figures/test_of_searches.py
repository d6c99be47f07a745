"""Figures of searches show the means over seeds of what was trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pipelines.config import PipelineConfig, load_config
from pipelines.evaluation.named_models import NamedModel
from pipelines.paper_figures import of_searches
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.stage import StageError, StagePlan
from pipelines.tuning.results import Trial, by_setting, write_results
from pipelines.tuning.search import TABLE, search_dir
from pipelines.tuning.space import SearchConfig
from preprocessing.datasets import Caption, Record

ROWS = SearchConfig.model_validate(
    {"name": "ablation", "method": "rows", "seeds": 2, "rows": {"a": {}, "b": {}, "c": {}}}
)


def trial(settings: dict[str, object], seed: int, rsum: float | None, first: float = 0.0) -> Trial:
    recalls = {} if rsum is None else {"i2t_r01": first, "t2i_r01": 20.0}
    return Trial(f"{settings}{seed}", settings, seed, rsum, 1, 5, False, "" if rsum else "nan", recalls)


@pytest.fixture
def finished(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Trial]], PipelineConfig]:
    """Lets every search have these trials; returns a configuration."""

    def finish(trials: list[Trial]) -> PipelineConfig:
        monkeypatch.setattr(of_searches, "settings_of", lambda *_: by_setting(trials))
        return load_config(None)

    return finish


def test_rows_are_drawn_in_their_order(finished: Callable[[list[Trial]], PipelineConfig]) -> None:
    values = {"b": (190.0, 190.0), "a": (200.0, 210.0), "c": (300.0, None)}
    trials = [
        trial({"row": name}, seed, rsum, 20.0 + 2 * seed) for name, of in values.items() for seed, rsum in enumerate(of)
    ]
    first, _, rsum = of_searches.rows(finished(trials), ROWS).axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["a", "b", "c"]
    assert [text.get_text() for text in first.texts] == ["21.0", "21.0", "failed"]
    assert [text.get_text() for text in rsum.texts] == ["205.0", "190.0", "failed"]
    assert rsum.get_ylim() == (2.5, -0.5)  # the first row is at the top
    with pytest.raises(StageError, match="no row with an RSUM"):
        of_searches.rows(finished(trials[-1:]), ROWS)


def test_a_grid_shows_the_mean_of_every_combination_and_frames_the_best(
    finished: Callable[[list[Trial]], PipelineConfig],
) -> None:
    image, text = "model.image.pooling", "model.text.pooling"
    kinds = {"max": {"name": "max"}, "kmax 5": {"name": "kmax", "k": 5}, "mean": {"name": "mean"}}
    space = {key: {"values": list(kinds.values())[:count]} for key, count in ((image, 2), (text, 3))}
    grid = SearchConfig.model_validate({"name": "kmax", "method": "grid", "seeds": 2, "space": space})
    rsums = {("max", "max"): (200.0, 210.0), ("max", "mean"): (230.0, 250.0), ("kmax 5", "kmax 5"): (100.0, None)}
    trials = [
        trial({image: kinds[row], text: kinds[column]}, seed, rsum)
        for (row, column), values in rsums.items()
        for seed, rsum in enumerate(values)
    ]
    axes = of_searches.grid(finished(trials), grid).axes[0]
    shown = {text.get_position(): text.get_text() for text in axes.texts}
    assert shown == {(0, 0): "205.0", (1, 0): "none", (2, 0): "240.0", (0, 1): "none", (1, 1): "none", (2, 1): "none"}
    (frame,) = axes.patches
    assert (frame.get_xy(), frame.get_label()) == ((1.5, -0.5), "best: 240.0")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["max", "kmax 5"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == (text, image)
    with pytest.raises(StageError, match="no setting with an RSUM"):
        of_searches.grid(finished([]), grid)


def test_a_search_of_another_method_is_refused() -> None:
    other = SearchConfig.model_validate(
        {"name": "some", "method": "random", "space": {"loss.margin": {"uniform": [0, 1]}}}
    )
    with pytest.raises(StageError, match="rows are drawn of a search with the method rows; 'some' has random"):
        of_searches.rows(load_config(None), other)
    with pytest.raises(StageError, match="a grid is drawn of two keys with values"):
        of_searches.grid(load_config(None), other)


def test_a_search_that_has_not_ended_is_said_to_be(work_dir: Path) -> None:
    with pytest.raises(StageError, match=r"has not finished .*pipelines/tune\.py"):
        of_searches.settings_of(load_config(None, [f"work_dir={work_dir}"]), ROWS)


def test_views_of_a_search_are_those_of_its_models(
    work_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"one": {"model.image.views": 1}, **{f"lambda {lam}": {"loss.lam": lam} for lam in (0.1, 0.7, 1.0)}}
    search = SearchConfig.model_validate({"name": "views", "method": "rows", "rows": rows})
    multi = load_config(None, [f"work_dir={work_dir}", "preset=mv_vse", "model.image.mlp=false"])
    stage = search_dir(multi, search)
    stage.create()
    rsums = dict(zip(rows, (90.0, 100.0, 120.0, 110.0), strict=True))
    write_results([trial({"row": name}, 0, rsum) for name, rsum in rsums.items()], stage.path / TABLE)
    stage.complete({}, [TABLE])
    trained: dict[str, PipelineConfig] = {}

    def evaluated(named: NamedModel) -> SimpleNamespace:
        trained[named.reference] = named.config
        record = Record("i", "scene://0/0", "dev", (Caption("i#0", "a"), Caption("i#1", "b")))
        Gallery(torch.eye(2).unsqueeze(0), torch.eye(2), (record,)).save(tmp_path / named.reference / "gallery")
        return SimpleNamespace(directory=tmp_path / named.reference, metrics={"rsum": 300.0})

    plan = StagePlan("train", "f", tmp_path, 1, 1, "epochs", "", {"best": tmp_path})
    monkeypatch.setattr(of_searches, "evaluate_model", evaluated)
    monkeypatch.setattr(of_searches, "plan_stages", lambda *_, **__: {"train": plan})
    figure = of_searches.view_diversity(multi, search)
    assert trained["one"].model.image.views == 1
    assert {each.loss.lam for name, each in trained.items() if name != "one"} == {0.1, 0.7, 1.0}
    shares = [axes.get_title().partition("\n")[0] for axes in figure.axes if axes.get_xlabel() == "view"]
    assert shares == ["lambda 1.0, λ = 1", "lambda 0.7, λ = 0.7"]

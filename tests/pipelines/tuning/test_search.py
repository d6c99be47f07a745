"""A search: its configuration, what it draws, and what it says of its trials."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pipelines.config import ConfigError, load_config
from pipelines.tuning.best import as_file
from pipelines.tuning.results import Trial, by_setting, read_results, write_results
from pipelines.tuning.search import search_dir
from pipelines.tuning.space import SearchConfig, check_space, load_search, with_settings
from vse_core.evaluation.protocols import RECALLS

SEARCHES = Path(__file__).resolve().parents[3] / "pipelines" / "config" / "searches"
CONFIGS = {"mv_vse": "flickr8k_mv_vse.yaml", "vse_2ad": "flickr8k_vse_2ad.yaml"}


def search(**changes: object) -> SearchConfig:
    values = {
        "name": "some",
        "method": "random",
        "space": {
            "loss.margin": {"uniform": [0.1, 0.3]},
            "training.learning_rate": {"log_uniform": [1e-4, 1e-2]},
            "model.image.pooling": {"values": [{"name": "mean"}, {"name": "kmax", "k": 5}]},
        },
    }
    return SearchConfig.model_validate({**values, **changes})


@pytest.mark.parametrize("path", sorted(SEARCHES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_searches_that_ship_fit_their_configurations(path: Path) -> None:
    system = next((name for name in CONFIGS if path.stem.startswith(name)), None)
    config = load_config(SEARCHES.parent / "data" / CONFIGS.get(system, "scenes.yaml"))
    check_space(config, load_search(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"method": "tpe"}, "method: must be one of random, grid, asha, rows; got 'tpe'"),
        ({"space": {}}, "space: the method random needs it, and takes no rows"),
        ({"method": "rows"}, "rows: the method rows needs it, and takes no space"),
        ({"rows": {"a": {"loss.margin": 1}}}, "space: the method random needs it, and takes no rows"),
        (
            {"method": "rows", "space": {}, "rows": {"a": {"seed": 1}}},
            "rows.a.seed: can be searched are keys of model, loss",
        ),
        ({"space": {"loss.margin": {"uniform": [0.3, 0.1]}}}, "the lower bound comes first, got 0.3 and 0.1"),
        ({"space": {"loss.margin": {"log_uniform": [0, 0.1]}}}, "logarithms need numbers above 0, got 0"),
        ({"space": {"loss.margin": {}}}, "give one of values, uniform and log_uniform, got none"),
        ({"space": {"loss.margin": {"values": [1], "uniform": [0, 1]}}}, "got values and uniform"),
        ({"space": {"features.batch_size": {"values": [1]}}}, "can be searched are keys of model, loss"),
        ({"method": "grid"}, "space.loss.margin: a grid needs `values`"),
        ({"trials": 0}, "trials: "),
        ({"method": "asha", "seeds": 2}, "seeds: asha ends trainings early"),
    ],
)
def test_a_search_that_cannot_be(tmp_path: Path, content: dict[str, object], message: str) -> None:
    whole = {"name": "some", "method": "random", "space": {"loss.margin": {"uniform": [0.1, 0.3]}}, **content}
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(whole))
    with pytest.raises(ConfigError) as caught:
        load_search(tmp_path / "search.yaml")
    assert message in str(caught.value)
    assert str(tmp_path / "search.yaml") in str(caught.value)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"loss.margn": {"values": [0.1]}}, r"loss.margn: unknown key .*\(from the search's space\).*'?margin"),
        ({"loss.margin.x": {"values": [0.1]}}, "the search sets loss.margin.x: there is no such key"),
        ({"loss.margin": {"uniform": [-1, 0.1]}}, r"loss.margin: .*\(from the search's space\)"),
        ({"model.image.pooling": {"values": [{"name": "kmax", "k": 0}]}}, "model.image.pooling.k"),
        ({"training.batch_size": {"uniform": [32, 64]}}, r"training.batch_size: .*valid integer"),
    ],
)
def test_a_space_that_does_not_fit_ends_before_work(space: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_space(load_config(None), search(space=space))


def test_trainings_without_epochs_cannot_end_early() -> None:
    config = load_config(None, ["training.epochs=0"])
    check_space(config, search(space={"loss.margin": {"values": [0.1]}}))
    check_space(config, search(method="asha", space={"training.epochs": {"values": [0, 2]}}))
    with pytest.raises(ConfigError, match="no epochs"):
        check_space(config, search(method="asha", space={"loss.margin": {"values": [0.1]}}))


ROWS = SearchConfig.model_validate(
    {
        "name": "ablation",
        "method": "rows",
        "seeds": 2,
        "rows": {
            "as it is": {},
            "mean": {"model.image.pooling": {"name": "mean"}, "loss.margin": 0.3},
            "margin 0.1": {"loss.margin": 0.1},
        },
    }
)


def test_a_row_has_settings_of_its_own_and_all_rows_are_checked_before_work() -> None:
    assert (ROWS.settings, list(ROWS.domains)) == (3, ["row"])
    assert ROWS.values_of({"row": "as it is"}) == {}
    config = with_settings(load_config(None), ROWS.values_of({"row": "mean"}), 4)
    assert (config.loss.margin, config.model.image.pooling.name, config.seed) == (0.3, "mean", 4)
    check_space(load_config(None), ROWS)
    # Unlike a grid, of which the outermost combinations stand for the others.
    wrong = ROWS.model_copy(update={"rows": {**ROWS.rows, "last": {"loss.margn": 1}}})
    with pytest.raises(ConfigError, match=r"loss\.margn: unknown key"):
        check_space(load_config(None), wrong)


def test_settings_replace_what_stood_there() -> None:
    config = with_settings(load_config(None), {"loss.margin": 0.33, "model.image.pooling": {"name": "kmax", "k": 7}}, 5)
    values = config.model_dump()
    assert (values["loss"]["margin"], values["seed"]) == (0.33, 5)
    assert values["model"]["image"]["pooling"] == {"name": "kmax", "k": 7}
    rest = load_config(None).model_dump(exclude={"loss", "model", "seed"})
    assert config.model_dump(exclude={"loss", "model", "seed"}) == rest


def test_what_follows_from_a_setting_follows_from_the_searched_one() -> None:
    """A trial is bit for bit the training with the same settings."""
    last, gpo = ({"model.text.pooling": {"name": name}} for name in ("last", "gpo"))
    base = load_config(None, ["model.text.pooling={name: last}"])
    assert base.model.text.start == "orthogonal_bias"
    assert with_settings(base, gpo, base.seed) == load_config(None, ["model.text.pooling={name: gpo}"])
    assert with_settings(base, {}, base.seed) == base == with_settings(load_config(None), last, base.seed)
    given = load_config(None, ["model.text.start=bias"])
    assert with_settings(given, gpo, given.seed).model.text.start == "bias"


@pytest.mark.parametrize(
    ("overrides", "settings"),
    [
        ([], {"loss.margin": 0.33}),
        (["preset=univse_matched"], {"model.image.center": False}),
        (["preset=vse_c"], {"loss.attack": "all"}),
    ],
)
def test_the_winner_is_what_its_file_gives(
    overrides: list[str], settings: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the preset and the environment have."""
    config = with_settings(load_config(None, overrides), settings, 0)
    (tmp_path / "best.yaml").write_text(as_file(config))
    monkeypatch.setenv("VSE_STORAGE", str(tmp_path / "storage"))
    assert load_config(tmp_path / "best.yaml") == config


def test_the_winner_of_a_dual_encoder_is_what_its_file_gives(tmp_path: Path) -> None:
    """Its preset names the model, which the file has by its two sides."""
    (tmp_path / "tune.yaml").write_text(
        f"preset: dual_encoder\nwork_dir: {tmp_path}\ndataset: {{format: scenes, images: {{train: 8, dev: 4}}}}\n"
        "features: {extractor: images}\nmodel: {weights: openai/clip-vit-base-patch32, lora: {rank: 4}}\n"
    )
    config = with_settings(load_config(tmp_path / "tune.yaml"), {"training.learning_rate": 1e-5}, 0)
    (tmp_path / "best.yaml").write_text(as_file(config))
    assert load_config(tmp_path / "best.yaml") == config


def trial(margin: float, seed: int, rsum: float | None, first: float = 0.0) -> Trial:
    settings = {"loss.margin": margin, "model.image.pooling": {"name": "kmax", "k": 5}}
    recalls = {} if rsum is None else dict(zip(RECALLS, (first, 40.0, 50.0, 20.0, 30.0, 40.0), strict=True))
    return Trial(f"{margin}-{seed}", settings, seed, rsum, 1, 5, False, "" if rsum else "the loss is nan", recalls)


def test_means_over_seeds_decide_and_the_table_holds_everything(tmp_path: Path) -> None:
    rsums = {0.1: (200.0, 210.0), 0.2: (240.0, None), 0.3: (203.0, 205.0)}
    trials = [
        trial(margin, seed, rsum, 20.0 + 2 * seed) for margin, of in rsums.items() for seed, rsum in enumerate(of)
    ]
    write_results(trials, tmp_path / "trials.csv")
    assert read_results(tmp_path / "trials.csv") == trials
    first, second, last = by_setting(trials)
    assert (first.settings["loss.margin"], first.mean, first.trainings, first.recalls["i2t_r01"]) == (
        0.1,
        205.0,
        2,
        21.0,
    )
    assert first.deviation == pytest.approx(50**0.5)
    assert second.mean == 204.0
    assert (last.mean, last.problem) == (None, "the loss is nan")


def test_a_setting_that_was_drawn_twice_is_one_training() -> None:
    """The one that ASHA has stopped later went on with the other's."""
    stopped, whole = trial(0.1, 0, 100.0), replace(trial(0.1, 0, 280.0), trial="again", epochs=25)
    for trials in ([stopped, whole], [whole, stopped]):
        (setting,) = by_setting(trials)
        assert (setting.mean, setting.trainings, setting.epochs) == (280.0, 1, 25)


def test_a_search_is_another_if_its_trainings_or_its_winner_would_be(tmp_path: Path) -> None:
    base = [f"work_dir={tmp_path}"]
    changes = ([], ["evaluation.folds=2"], ["name=other"], ["registry.name=other"])
    assert len({search_dir(load_config(None, [*base, *change]), search()).path for change in changes}) == 4
    vectors = tmp_path / "glove.txt"
    vectors.write_text("a 1 2")
    named = search(space={"model.text.word_vectors": {"values": [None, str(vectors)]}})
    before = search_dir(load_config(None, base), named).path
    vectors.write_text("a 1 3")
    assert search_dir(load_config(None, base), named).path != before, "a file that a value names has other contents"
    left_out = tmp_path / "out.csv"
    left_out.write_text("image_id,caption_id\na,b\n")
    named = search(space={"training.leave_out": {"values": [None, str(left_out)]}})
    before = search_dir(load_config(None, base), named).path
    left_out.write_text("image_id,caption_id\na,c\n")
    assert search_dir(load_config(None, base), named).path != before
    same = load_config(None, [*base, f"tracking.uri=sqlite:///{tmp_path}/other.db"])
    assert search_dir(same, search()).path == search_dir(load_config(None, base), search()).path


def test_no_cell_of_the_table_is_a_formula(tmp_path: Path) -> None:
    settings = {"loss.margin": -0.5, "name": "=1+1"}
    write_results([Trial("=1", settings, 0, None, 1, 1, False, "-2+3 \x1b[2J")], tmp_path / "trials.csv")
    assert "\n'=1,0,,1,1,False,'-2+3 \\x1b[2J," in (tmp_path / "trials.csv").read_text()
    (trial,) = read_results(tmp_path / "trials.csv")
    assert trial.settings == settings

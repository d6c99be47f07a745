"""Hyperparameter search with Ray Tune around a configuration; makes a table and the winner as a YAML file."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from pipelines.config import PipelineConfig, load_config
from pipelines.plugins import sources
from pipelines.runtime import cluster
from pipelines.runtime.cli import console, file_or_packaged, make_parser
from pipelines.runtime.lock import exclusive
from pipelines.runtime.outputs import record_outputs
from pipelines.runtime.stage import StageDir, StageError, check_output, content_digest, fingerprint, used_folders
from pipelines.stages.preflight import check_before_start
from pipelines.stages.runner import plan_stages, run_stages
from pipelines.stages.train.plan import model_content
from pipelines.tracking import PipelineRuns, Tracker
from pipelines.tuning.best import as_file
from pipelines.tuning.results import Setting, by_setting, read_results, value_text, write_results
from pipelines.tuning.space import ROW, SearchConfig, check_space, examples, load_search, with_settings
from vse_core.evaluation.protocols import RECALLS

NAME = "tune"
# Raised when the same search would draw other settings or judge them otherwise.
VERSION = 2
BEST, TABLE = "best.yaml", "trials.csv"


def main() -> None:
    """Read the command line and search."""
    parser = make_parser()
    help_ = "YAML file of the search, or one that comes with the package"
    parser.add_argument("--search", type=file_or_packaged("searches"), required=True, metavar="FILE", help=help_)
    parser.add_argument(
        "--search-set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the search"
    )
    options = parser.parse_args()
    config, search = load_config(options.config, options.set), load_search(options.search, options.search_set)
    if options.dry_run:
        check_space(config, search)
        check_before_start(config.for_dry_run())
        _print_plan(config, search)
        return
    run_search(config, search)


def run_search(config: PipelineConfig, search: SearchConfig) -> Path:
    """Search, or resume an earlier start; prints the table and returns the directory of the results.

    All trials share the shards, which are made first. A trial is an ordinary training: finished ones are not repeated.
    Raises ConfigError if the space does not fit the configuration; StageError if not a single trial could be
    trained; BusyError if another process is at this search.
    """
    check_space(config, search)
    check_before_start(config)
    stage = search_dir(config, search)
    if not stage.is_complete():
        plans = run_stages(config, ["extract", "parse"] if config.kind.reads_graphs else ["extract"])
        stage.create()
        was_connected = cluster.is_connected()
        try:
            cluster.connect(config.ray.address)
            with (
                exclusive(config.mirror, stage.path),
                PipelineRuns(config.experiment, stage.fingerprint, search.name) as runs,
                runs.parent as tracker,
            ):
                used = runs.folder, stage.path, *used_folders(plans)
                record_outputs(config.mirror, *used, model=config.registered_model)
                _search(config, search, stage, tracker)
        finally:
            if not was_connected:
                cluster.disconnect()
    _print_results(finished_settings(stage), search, stage.path)
    return stage.path


def finished_settings(stage: StageDir) -> list[Setting]:
    """Return the settings of a finished search, the best first; DigestError if the results were changed."""
    stage.pull()
    check_output(stage.path, TABLE)
    return by_setting(read_results(stage.path / TABLE))


def search_dir(config: PipelineConfig, search: SearchConfig) -> StageDir:
    """Return the output directory of a search."""
    content = {
        "version": VERSION,
        "train": plan_stages(config, last="train")["train"].fingerprint,
        # All of it is in the file of the winner, but for where it is at work.
        "config": config.model_dump(mode="json", exclude={"work_dir", "storage", "tracking", "ray"}),
        "search": search.model_dump(mode="json", exclude={"concurrent"}),
    }
    if others := _read_by_trials(config, search):
        content["read"] = others
    return StageDir(config.work_dir, NAME, fingerprint(content), config.mirror)


def _read_by_trials(config: PipelineConfig, search: SearchConfig) -> list[Any]:
    """Return the contents of files, and the sources of plugins, that searched values alone name."""
    own = _read_by(config)
    return sorted({found for each in examples(config, search) if (found := _read_by(each)) != own})


def _read_by(config: PipelineConfig) -> str:
    given, content = config.model.model_dump(mode="json"), model_content(config)
    files = {
        f"{side}.{key}": content[side][key]
        for side, settings in (("image", config.model.image), ("text", config.model.text))
        for key in settings.files
        if content[side][key] != given[side][key]
    }
    initial, left_out = config.training.initial, config.training.leave_out
    files |= {str(path): content_digest(path) for path in (initial, left_out) if path is not None and path.exists()}
    return fingerprint([files, sources(config.model, config.loss)])


def _search(config: PipelineConfig, search: SearchConfig, stage: StageDir, tracker: Tracker) -> None:
    from pipelines.tuning.trials import forget, run_trials  # Ray, which planning does without

    tracker.set_tags({"vse.stage": NAME, "vse.split": config.dataset.eval_split})
    tracker.log_params({"config": config.name, **search.model_dump(mode="json")})
    began = time.monotonic()
    trials = run_trials(config, search, stage.path, tracker.run_id)
    if (wanted := search.settings * search.seeds) > len(trials):
        raise StageError(
            f"{NAME}: {len(trials)} of {wanted} trials have ended: run the same command again to finish the others"
        )
    write_results(trials, stage.path / TABLE)
    winner = by_setting(trials)[0]
    if winner.mean is None:
        forget(stage.path)  # the next start tries again
        raise StageError(f"{NAME}: no trial could be trained; the first says: {trials[0].problem}")
    best = with_settings(config, search.values_of(winner.settings), config.seed)
    header = f"# The best of {len(trials)} trials of the search {search.name!r}: RSUM {winner.mean:.1f}.\n"
    (stage.path / BEST).write_text(header + as_file(best), encoding="utf-8")
    for name in (TABLE, BEST):
        tracker.log_artifact(stage.path / name)
    tracker.log_metrics({"best/rsum": winner.mean, "trials": len(trials)})
    record = {"seconds": round(time.monotonic() - began, 1), "rsum": winner.mean, "settings": winner.settings}
    stage.complete(record, [TABLE, BEST])


def _print_plan(config: PipelineConfig, search: SearchConfig) -> None:
    table = Table("key", "drawn from", "now", title=f"{search.name}: {search.method}, {search.settings} settings")
    values = config.model_dump(mode="json")
    for name, row in search.rows.items():
        table.add_row(f"{ROW} {name}", ", ".join(f"{key} {value_text(value)}" for key, value in row.items()), "")
    for key, domain in search.space.items():
        node = values
        for part in key.split("."):
            node = node.get(part, "")  # unset ones that have no effect are left out
        table.add_row(key, str(domain.model_dump(exclude_none=True)), str(node))
    console().print(table)


def _print_results(settings: Sequence[Setting], search: SearchConfig, directory: Path) -> None:
    both_ways = ("image to text R@1 / 5 / 10", "text to image R@1 / 5 / 10")
    table = Table("rank", *search.domains, *both_ways, "RSUM", "epochs", "trainings", title=search.name)
    for rank, setting in enumerate(settings, start=1):
        spread = f" ± {setting.deviation:.1f}" if setting.deviation is not None else ""
        figure = f"{setting.mean:.1f}{spread}" if setting.mean is not None else setting.problem
        values = [value_text(setting.settings[key]) for key in search.domains]
        recalls = [f"{setting.recalls[name]:.1f}" for name in RECALLS if name in setting.recalls]
        ways = " / ".join(recalls[:3]), " / ".join(recalls[3:])
        table.add_row(str(rank), *values, *ways, figure, str(setting.epochs), str(setting.trainings))
    console().print(table)
    console().print(f"the best as a configuration: {directory / BEST}", soft_wrap=True)

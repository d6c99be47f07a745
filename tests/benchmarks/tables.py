"""Write the tables of README and docs/, their plot and the figures of infra/sizing.json from the recorded results.

Run: python tests/benchmarks/tables.py, with `--check` to only compare
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any

from leaderboard_plot import draw
from sizing_tables import data_table, limits_table, run_table, shipped_figures, step_table
from univse_tables import (
    ATTACK_HEADER,
    DEPENDENCY_HEADER,
    RETRIEVAL_HEADER,
    attack_rows,
    dependency_rows,
    retrieval_rows,
)

from infra.sizing import FIGURES, Machines, Measured

ROOT = Path(__file__).resolve().parents[2]
PLOT = ROOT / "docs/images/leaderboard.png"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
RESULTS = Path(__file__).with_name("results")

# Of both splits, which a training process opens.
FLICKR8K_CAPTIONS = 35_000


def univse_table(header: list[str], rows: Callable[[dict[str, Any]], list[list[str]]]) -> str:
    """A table of UniVSE and its baselines, from the study of them all."""
    return _table(header, rows(_read("univse_systems")))


def losses_table() -> str:
    """RSUM of the last epoch of short runs by loss and recipe, the best first."""
    runs = {
        label: [run["metrics"]["rsum"] for run in seeds.values()] for label, seeds in _read("losses")["rows"].items()
    }
    rows = [
        [label, f"**{statistics.mean(each):.1f}**", ", ".join(f"{rsum:.1f}" for rsum in each)]
        for label, each in sorted(runs.items(), key=lambda row: -statistics.mean(row[1]))
    ]
    return _table(["loss and recipe", "RSUM", "each seed"], rows)


GRIDS = {"leaderboard": "EfficientNet-Lite2, 9x9", "mobilenet leaderboard": "MobileNetV2, 7x7"}
DIRECTIONS = {"i2t": "image to text", "t2i": "text to image"}
TELLING = (
    "VSE-infinity, MiniLM, learned sigmoid loss, feature dropout, R+G",
    "VSE-infinity, MiniLM, learned sigmoid loss, feature dropout",
    "VSE-infinity, learned sigmoid loss, feature dropout",
    "linear CCA MiniLM",
    "MV-VSE",
    "VSE-infinity",
    "VSE+2AD",
    "linear CCA TF-IDF",
    "VSE++",
    "UniVSE",
)


def leaderboard_table(features: str, names: Sequence[str] | None = None) -> str:
    """The systems of the leaderboard on a set of features, the best first: with their recalls, or few rows without."""
    found = _read("leaderboard")["features"][features]
    floor = {f"linear CCA {kind}": [row] for kind, row in _read("linear_cca")[features]["rows"].items()}
    recalls = {} if names else {f"{way} R@1 / 5 / 10": short for short, way in DIRECTIONS.items()}
    rows = []
    for name, row in sorted(found["summary"].items(), key=lambda item: -item[1]["rsum"]):
        if names is not None and name not in names:
            continue
        runs = list(found["runs"].get(name, {}).values())
        # Of the training that other work disturbed least.
        cost = f"{row['seeds']} x {min(run['training_seconds'] for run in runs) / 60:.0f}" if runs else ""
        rsum = f"**{row['rsum']:.1f}** ({row['interval'][0]:.0f} to {row['interval'][1]:.0f})"
        over = [_difference(row["over"].get(other)) for other in ("VSE++", "linear CCA TF-IDF")]
        means = [_mean_recalls(runs or floor[name], way) for way in recalls.values()]
        rows.append([name, *means, rsum, *over, cost])
    return _table(["", *recalls, "RSUM", "over VSE++", "over linear CCA, TF-IDF", "seeds x minutes"], rows)


def _mean_recalls(runs: Sequence[dict[str, Any]], way: str) -> str:
    """R@1, R@5 and R@10 of a direction, the means over runs."""
    return " / ".join(f"{statistics.mean(run['metrics'][f'{way}_r{k:02}'] for run in runs):.1f}" for k in (1, 5, 10))


def _difference(over: Sequence[float] | None) -> str:
    """A difference with its interval, or nothing."""
    return "" if over is None else f"{over[0]:+.1f} ({over[1]:+.1f} to {over[2]:+.1f})"


def regularisers_table() -> str:
    """What each candidate adds to VSE-infinity, on both losses, the best first."""
    found = _read("regularisers")["features"]["EfficientNet-Lite2, 9x9"]["summary"]
    rows = []
    for name, row in sorted(found.items(), key=lambda item: -item[1]["rsum"]):
        # The row that has all but the last change of a name; that of another loss has the published one's.
        bases = [base for base in row["over"] if name.startswith(f"{base}, ")]
        base = max(bases, key=len, default="published loss" if row["over"] else "")
        over = row["over"].get(base)
        compared = [_difference(over), "" if over is None else base]
        rows.append([name, f"**{row['rsum']:.1f}**", *compared, str(row["seeds"])])
    return _table(["VSE-infinity with", "RSUM", "difference", "from", "seeds"], rows)


def search_table() -> str:
    """The trials of the search over the parts of the papers, the best first."""
    header = ["aggregator of cells", "views", "text encoder", "loss", "feature dropout", "epochs", "RSUM"]
    rows = []
    for trial in sorted(_read("parts_search")["trials"], key=lambda trial: -trial["rsum"]):
        chosen = trial["settings"]
        names = [chosen[part]["name"] for part in ("model.image.pooling", "model.text", "loss")]
        views, dropout = (str(chosen[key]) for key in ("model.image.views", "training.feature_dropout"))
        epochs = f"{trial['epochs']}{', stopped' if trial['stopped_early'] else ''}"
        names = [{"bigru": "BiGRU", "bert": "MiniLM"}.get(name, name) for name in names]
        rows.append([names[0], views, *names[1:], dropout, epochs, f"**{trial['rsum']:.1f}**"])
    return _table(header, rows)


def adpool_table() -> str:
    """What each level of VSE+2AD's aggregator is worth."""
    header = [
        "",
        "token level's share",
        "cells it weighs",
        "cells the embedding level weighs",
        "RSUM",
        "token level alone",
        "embedding level alone",
        "mean instead",
    ]
    rows = [
        [
            label,
            f"{model['token_share']:.2f}",
            f"{model['cells_of_the_token_level']:.0f} of {model['cells']}",
            f"{model['cells_of_the_embedding_level']:.0f} of {model['cells']}",
            f"**{model['rsum']:.1f}**",
            *(f"{model[f'rsum_{way}']:.1f}" for way in ("token_level", "embedding_level", "mean")),
        ]
        for label, model in _read("adpool_study")["models"].items()
    ]
    return _table(header, rows)


def views_table() -> str:
    """How alike the views of MV-VSE are, and what each is worth."""

    def listed(values: Sequence[float], digits: int) -> str:
        return ", ".join(f"{value:.{digits}f}" for value in values)

    rows = [
        [
            name,
            listed(model["cosines"], 3),
            listed(model["weights_apart"], 2),
            f"{model['rsum']:.1f}",
            listed(model["rsum_of_each_view"], 1),
        ]
        for name, model in _read("views_study")["models"].items()
    ]
    return _table(["", "cosines", "GPO weights apart", "RSUM", "of each view alone"], rows)


def released_step_table() -> str:
    """Seconds of a training step, the released code's and ours in turns."""
    rows = []
    for processor, measured in _read("step_released")["processors"].items():
        for label, row in measured["rows"].items():
            seconds = [_seconds(row["seconds"][way]) for way in ("released", "float32", "bf16")]
            faster = [f"{row['times_faster'][way]:.2f} x" for way in ("float32", "bf16")]
            rows.append([processor, label, *seconds, *faster])
    head = ["processor", "B = 128", "released", "here, float32", "here, bf16", "float32 is faster by", "bf16 by"]
    return _table(head, rows)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.1f} ms"


def gpu_step_table() -> str:
    """Pairs a second and memory of whole steps on a GPU, in each precision, and of the straightforward way."""
    rows = []
    for preset, measured in _read("presets")["presets"].items():
        for way in ("straightforward", "float32", "tf32", "bf16"):
            found = measured[way]
            faster = f"{found['times_straightforward']:.2f} x" if way != "straightforward" else ""
            rate, memory = f"{found['samples_per_second']:,.0f}", f"{found['peak_memory_gb']:.1f} GB"
            rows.append([f"{preset}, B = {measured['batch']}", way, rate, memory, faster])
    return _table(["NVIDIA H200", "", "pairs a second", "memory", "faster by"], rows)


def gpu_extraction_table() -> str:
    """Images a second of networks on a GPU, and of one thread that decodes for them."""
    kinds = ("decoding, one thread", "float32", "bfloat16", "float32, the network alone", "bfloat16, the network alone")
    rows = [[name, *(f"{rates[kind]:,.0f}" for kind in kinds)] for name, rates in _read("gpu")["extraction"].items()]
    return _table(["images a second, NVIDIA H200", *kinds], rows)


def gpu_recurrence_table() -> str:
    """Milliseconds of the recurrences of a step on a GPU, forwards and backwards, packed and unpacked."""
    recurrences = _read("gpu")["recurrences"]
    columns = [(precision, way) for precision in ("float32", "tf32", "bf16") for way in ("packed", "unpacked")]
    rows = [
        [name, *(f"{found[precision][way]:.1f} ms" for precision, way in columns)]
        for name, found in recurrences.items()
    ]
    return _table(["NVIDIA H200", *map(", ".join, columns)], rows)


def parser_table() -> str:
    """Precision, recall and F1 of the parser on each set of annotated captions."""
    names = {
        "components_gold": "60, rules written against them",
        "components_gold_development": "75, rules improved on them",
    }
    names["components_gold_heldout"] = "**75, opened at the end**"
    quality = _read("parsing")["quality"]
    kinds = ("objects", "attributes", "relations")
    return _table(
        ["captions", *kinds],
        [
            [label, *("{precision:.3f} / {recall:.3f} / {f1:.3f}".format(**quality[name][kind]) for kind in kinds)]
            for name, label in names.items()
        ],
    )


def gru_start_table() -> str:
    """RSUM of short runs by the start of the GRU, for each model and the seeds that were measured."""
    rows = _read("univse_start")["rows"]
    starts = {"published": "PyTorch's, as published", "bias": "update gate that keeps", "orthogonal": "orthogonal"}
    starts["orthogonal_bias"] = "**both (default)**"
    models = ("VSE++", "UniVSE")
    return _table(
        ["start of the GRU", *models],
        [[label, *(_rsums(rows.get(f"{model}, {start}", {})) for model in models)] for start, label in starts.items()],
    )


def _rsums(seeds: dict[str, Any]) -> str:
    return ", ".join(f"{run['metrics']['rsum']:.1f}" for run in seeds.values()) or "not measured"


def balance_table() -> str:
    """Gradient norms of the weighted terms of UniVSE's loss."""
    result = _read("univse_balance")
    terms = ("sent", "comp", "obj", "attr", "rel")
    rows = []
    for when in ("start", "trained"):
        norms = {
            "all negatives, added up (before)": result["sum"][when]["all"],
            "all negatives, mean of violations": result["mean of violations"][when]["all"],
            "hardest negatives": result["mean of violations"][when]["hardest"],
        }
        rows += [[when, label, *(f"{values[term]:.2f}" for term in terms)] for label, values in norms.items()]
    return _table(["", "", "sentences", "components together", "objects", "attributes", "relations"], rows)


def gpo_study_table() -> str:
    """Errors of learned rank weights: on sizes that were trained on, and on smaller and larger ones."""
    errors = _read("gpo_study")["coefficient_rmse"]
    targets = ("mean", "max", "10 largest", "top half", "linear decay")
    sizes = ("seen 20-100", "smaller 10-19", "larger 101-120")
    rows = [
        [way, *(" / ".join(f"{of_target[target][size]:.3f}" for size in sizes) for target in targets)]
        for way, of_target in errors.items()
    ]
    return _table(["", *targets], rows)


def speed_table() -> str:
    """The table of speed: a row for every benchmark, with its reference."""
    rows = [row for name, rows in SPEED.items() for row in rows(_read(name))]
    return _table(["what", "measured", "compared"], rows)


def scale_table() -> str:
    """What starting, planning, the loss and the step cost, and what they did before."""
    rows = [row for name, rows in SCALE.items() for row in rows(_read(name))]
    return _table(["what", "now", "before"], rows)


def _faster_step_rows(result: dict[str, Any]) -> list[list[str]]:
    rows = []
    for processor, before in _read("step_released_before")["processors"].items():
        now = result["processors"][processor]["rows"]
        for label, row in before["rows"].items():
            ways = [each["times_faster"] for each in (now[label], row)]
            cells = [f"{way['float32']:.2f} x in float32, {way['bf16']:.2f} x in bf16" for way in ways]
            rows.append([f"rate of the training step, {label}, {processor}, over the released code", *cells])
    return rows


def failures_table() -> str:
    """The table of faults injected into the extraction, their outcome, and what was lost."""
    rows = [[case["failure"], case["happened"], case["lost"]] for case in _read("extraction_faults")["cases"]]
    return _table(["injected", "what happened", "lost"], rows)


def training_failures_table() -> str:
    """The table of faults injected into a training of two workers, their outcome, and what was lost."""
    rows = [
        [case["failure"], _training_failure(case), case["lost"]] for case in _read("training_faults")["cases"].values()
    ]
    return _table(["injected", "what happened", "lost"], rows)


def attacks_table() -> str:
    """The table of attacks: cases of each class, and what came of them, before and after if both were counted."""
    kinds = ("told", "harmless", "silent", "internal")
    rows = []
    for name, row in _read("attacks").items():
        counted = [row[when] for when in ("before", "after") if when in row]
        rows.append(
            [name, f"{row['after']['cases']:,}", *(" / ".join(str(each[kind]) for each in counted) for kind in kinds)]
        )
    return _table(["class", "cases", *kinds], rows)


def _training_failure(case: dict[str, Any]) -> str:
    """In words, by what the case has observed."""
    if "exit_status_of_the_second_start" in case:
        last_words = f', saying "{case["said"]}"' if case["said"] else ""
        happened = [f"the first command ends{last_words}; the second resumes"]
    else:
        happened = ["it continues by itself"]
    if "losses_missing_in_mlflow" in case:
        happened.append(f"{case['steps_during_the_outage']} steps meanwhile, all in MLflow afterwards, in order")
    if "requests_refused" in case:
        happened.append(
            f"{case['steps_during_the_outage']} steps meanwhile, {case['requests_refused']} requests refused"
        )
    if "workers" in case:
        beyond, most = case["first_step_beyond_1e-5"], case["largest_relative_difference_of_losses"]
        happened.append(
            f"{', '.join(map(str, case['workers']))} workers; losses within 1e-5 up to step {beyond}, {most:.1e}"
        )
    if case.get("checkpoint_made_for_it"):
        happened.append("a checkpoint is made before")
    happened.append(f"{case['steps_repeated']} of {case['steps']} steps repeated")
    return "; ".join(happened)


def _reader_rows(result: dict[str, Any]) -> list[list[str]]:
    ways = result["grid 49x1280"]["ways"]
    augmented = "random, TrainLoader, augmented"
    labels = {
        "samples from shards, random access": ways["random, TrainLoader"],
        "the same, augmented": ways[augmented],
        "and in a process's first epoch": ways[f"{augmented}, first epoch"],
        "and each sample compared with its checksum": ways[f"{augmented}, first epoch, every sample compared"],
    }
    return [
        [label, f"{way['samples_per_second']:,.0f} a second", f"{way['times_webdataset']:.1f} x webdataset, in order"]
        for label, way in labels.items()
    ]


def _start_up_rows(result: dict[str, Any]) -> list[list[str]]:
    flickr8k, large = result["flickr8k"], result["large"]
    images = large.pop("images")
    starts = {
        "Flickr8k, real captions": [flickr8k["with tables"], flickr8k["without tables"]],
        "Flickr8k with scene graphs, for UniVSE": [flickr8k["UniVSE with tables"], flickr8k["UniVSE without tables"]],
        **{f"{images / 1e6:.1f} million images and captions, made up, {way}": [now] for way, now in large.items()},
    }
    minutes = images * flickr8k["without tables"]["seconds_to_open"] / FLICKR8K_CAPTIONS / 60
    rows = []
    for name, ways in starts.items():
        cells = [f"{way['seconds']:.2f} s, {way['own_megabytes_at_the_first_batch']:.0f} MB of its own" for way in ways]
        cells += [f"{minutes:.0f} min, by arithmetic"]
        rows.append([f"start of a training process up to its first batch, {name}", *cells[:2]])
    return rows


def _planning_rows(result: dict[str, Any]) -> list[list[str]]:
    archives, size = result["archives"], result["megabytes_of_archive"]
    hours = archives * result["reading_seconds_of_archive"] / 3600
    return [
        [
            f"plan of {archives:,} archives of {size} MB on S3 (Swift)",
            f"{result['listing_seconds']:.1f} s",
            f"{hours:.1f} h, by arithmetic",
        ]
    ]


def _training_rows(result: dict[str, Any]) -> list[list[str]]:
    share = f"{100 * result['share_waiting_for_data']:.2f} % of it waiting for data"
    return [
        ["training step, VSE-infinity, 49 x 1280, D = 512, B = 128", f"{result['seconds_per_step']:.2f} s", share],
    ]


def _data_wait_rows(result: dict[str, Any]) -> list[list[str]]:
    return [
        [
            f"training step, data {name}",
            f"{way['seconds_per_step']:.2f} s, {100 * way['share_waiting_for_data']:.2f} % of it waiting",
            f"{way['times_a_batch_in_memory']:.2f} x a step on a batch in memory",
        ]
        for name, way in result["ways"].items()
        if name != "a batch in memory"
    ]


def _scaling_rows(result: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, way in result["ways"].items():
        speed_up = f"{way['speed_up_over_one_thread']:.2f} x 1 process of 1 thread"
        on_ray = f"on Ray Train {way['step_on_ray_over_by_hand']:.2f} x the time by hand"
        rows.append([f"training step, {name}", f"{way['seconds_per_step']['by hand']:.2f} s", f"{speed_up}; {on_ray}"])
    return rows


def _big_batch_rows(result: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, system in result["systems"].items():
        label = f"a batch of {result['pairs']} pairs, {name}, encoded {result['chunk']} at a time"
        memory = f"{system['megabytes']['in chunks']:,} MB, {system['seconds']['in chunks']:.1f} s"
        ratios = f"{system['memory_ratio']:.2f} x the memory and {system['time_ratio']:.2f} x the time of all at once"
        rows.append([label, memory, ratios])
    return rows


def _local_rows_rows(result: dict[str, Any]) -> list[list[str]]:
    runs: dict[tuple[str, int, int], list[str]] = {}
    for run in result["after"]["runs"] + result["before"]["runs"]:
        cells = runs.setdefault((run["loss"], run["pairs"], run["processes"]), [])
        cells.append(f"{run['megabytes']} MB, {run['cpu_seconds']:.1f} s")
    rows = [
        [f"loss ({loss}) of {pairs:,} pairs, D = 1024, processes: {processes}, each one", *cells]
        for (loss, pairs, processes), cells in runs.items()
        if pairs == 4096 and (processes == 4 or loss == "triplet, hardest")
    ]
    (step,) = result["after, big step"]["runs"]
    label = f"step on {step['pairs']:,} pairs, tiny towers, cached gradients, processes: {step['processes']}, each one"
    return [*rows, [label, f"{step['megabytes']:,} MB in all, {step['cpu_seconds']:.0f} s", "not run"]]


def _shared_weights_rows(result: dict[str, Any]) -> list[list[str]]:
    rows = []
    for whole, shared in itertools.pairwise(result["runs"]):
        if shared["parallelism"] == "fsdp2":
            label = (
                f"weights, gradients, AdamW's moments of a process, FSDP2, {shared['processes']} processes on one core"
            )
            ratios = [shared[name] / whole[name] for name in ("megabytes", "step_seconds")]
            compared = f"{ratios[0]:.2f} x the memory and {ratios[1]:.1f} x the time of DDP"
            rows.append([label, f"{shared['megabytes']:.0f} MB, {shared['step_seconds']:.1f} s a step", compared])
    return rows


def _feeding_rows(result: dict[str, Any]) -> list[list[str]]:
    found = result["medians"]
    rows = []
    for threads, way in found["rates"].items():
        label = f"extraction with a network that takes no time, decoding in {threads}"
        rows.append([label, f"{way['images_per_second']:.0f} images a second", f"{way['ratio']:.2f} x decoding alone"])
    waits = {name.rpartition(", ")[0]: share for name, share in found["network_waits"].items() if "meanwhile" in name}
    for name, share in waits.items():
        before = found["network_waits"][f"{name}, one shard after the other"]
        label = f"the network waits, extraction actors: {name[0]}, {name.partition(', ')[2]}"
        rows.append([label, f"{100 * share:.1f} % of the time", f"{100 * before:.1f} % with one shard after the other"])
    return rows


def _extraction_rows(result: dict[str, Any]) -> list[list[str]]:
    rows = []
    for actors, measured in result["by_actors"].items():
        rate = f"{measured['stage']['images_per_second']:.1f} images a second"
        compared = f"{measured['ratio']:.2f} x a bare loop over the network on as many cores"
        rows.append([f"extraction, MobileNetV2 at 224 x 224, decoding included, actors: {actors}", rate, compared])
    return rows


def _butd_rows(result: dict[str, Any]) -> list[list[str]]:
    whole = result["images_per_second"]
    rates = result["parts_images_per_second"].items()
    parts = ", ".join(f"{100 * whole / rate:.0f} % {name}" for name, rate in sorted(rates, key=lambda item: item[1]))
    return [["extraction, bottom-up attention at its published size, 2 threads", f"{whole:.2f} images a second", parts]]


def _parsing_rows(result: dict[str, Any]) -> list[list[str]]:
    rows = []
    for cores, label in (("one_core", "1 core"), ("two_cores", "2 cores")):
        rate = f"{result[cores]['stage_captions_per_second']:,.0f} captions a second"
        rows.append([f"parsing captions to graphs, {label}", rate, f"{result[cores]['ratio']:.2f} x bare `nlp.pipe`"])
    return rows


def _pooling_rows(result: dict[str, Any]) -> list[list[str]]:
    rows = []
    for size, gpo in _by_size(result["gpo"]):
        times = " ms; ".join(f"{gpo['milliseconds']['ours'][work]:.0f}" for work in WORKS) + " ms"
        ratios = " and ".join(f"{gpo['ratio'][work]:.1f}" for work in WORKS) + " x the straightforward way"
        rows.append([f"GPO, {size}, forwards and backwards; inference", times, ratios])
    for size, views in _by_size(result["views"]):
        ratios = " and ".join(f"{views['ratio'][work]:.2f}" for work in WORKS) + " x the time of one view"
        rows.append([f"three views by GPO, {size}, forwards and backwards; inference", "", ratios])
    return rows


def _by_size(results: dict[str, Any]) -> list[tuple[str, Any]]:
    """Results for sets of BxNxD, the smallest N first."""
    return sorted(results.items(), key=lambda item: int(item[0].split("x")[1]))


def _step_rows(result: dict[str, Any]) -> list[list[str]]:
    rate = f"{result['seconds_per_step']:.2f} s, {result['samples_per_second']:.0f} samples a second"
    parts = ", ".join(f"{100 * part['share']:.0f} % {name}" for name, part in result["parts"].items())
    return [["training step, VSE-infinity, 36 x 2048, D = 1024, B = 128", rate, parts]]


def _evaluation_rows(result: dict[str, Any]) -> list[list[str]]:
    coco, crossed = (result[part]["result"] for part in ("coco", "crisscrossed"))
    spent, ratios = coco["seconds"]["ours"], f"{coco['times the matrix product']:.2f} x the matrix product alone"
    size, megabytes = coco["size"].replace(" ", ""), coco["memory"]["risen_MB"]
    rows = [
        [
            f"evaluation, COCO's 5K and five folds of 1K, {size}",
            f"{spent:.1f} s, {megabytes:.0f} MB above the embeddings",
            f"{ratios}; {coco['times faster than the released code']:.1f} x faster than the released code",
        ]
    ]
    for name, case in result["views"]["result"].items():
        ratio = f"{case['times the matrix products']:.2f} x the matrix products alone"
        rows.append([f"the same, {name}", f"{case['seconds']['ours']:.1f} s", ratio])
    texts = crossed["t2t"]
    rows.append(
        [
            f"Crisscrossed Captions, text to text, {texts['size'].replace(' ', '')}",
            f"{texts['seconds']:.0f} s, {texts['risen_MB']:.0f} MB above the embeddings",
            f"the similarities in float64 would be {crossed['a matrix of captions in float64_MB']:,} MB",
        ]
    )
    if "large" in result:  # it takes a quarter of an hour, and may be measured by itself
        name, largest = list(result["large"]["result"].items())[-1]
        memory = f"{largest['seconds']:,.0f} s, {largest['risen_MB']:.0f} MB above the embeddings"
        rows.append([f"evaluation of a large gallery, {name.replace(' ', '')}x32", memory, ""])
    return rows


def _efficiency_rows(result: dict[str, Any]) -> list[list[str]]:
    sizes, pair = result["queries"]["result"]["sizes"], result["cross"]["result"]["milliseconds a pair"]
    rows = []
    for size, ways in list(sizes.items())[-2:]:
        exact = ways["this library, exact"]["milliseconds"]
        ratio = exact / ways["matrix product and top-k"]["milliseconds"]
        others = [
            f"{name} {way['milliseconds']:.2f} ms (recall {way['recall_at_10']:.2f})"
            for name, way in ways.items()
            if name in ("FAISS IVF", "FAISS HNSW")
        ]
        read_together = f"cross-attention of BERT's size {pair * int(size) / 3.6e6:,.0f} hours"
        rows.append(
            [
                f"a query over {int(size):,} embeddings, exact, 1 thread",
                f"{exact:.1f} ms",
                "; ".join([f"{ratio:.2f} x the matrix product and top-k", *others, read_together]),
            ]
        )
    return rows


SPEED: dict[str, Callable[[dict[str, Any]], list[list[str]]]] = {
    "reader": _reader_rows,
    "training": _training_rows,
    "data_wait": _data_wait_rows,
    "scaling": _scaling_rows,
    "big_batch": _big_batch_rows,
    "shared_weights": _shared_weights_rows,
    "extraction": _extraction_rows,
    "feeding": _feeding_rows,
    "butd": _butd_rows,
    "parsing": _parsing_rows,
    "pooling": _pooling_rows,
    "step": _step_rows,
    "evaluation": _evaluation_rows,
    "efficiency": _efficiency_rows,
}
SCALE: dict[str, Callable[[dict[str, Any]], list[list[str]]]] = {
    "start_up": _start_up_rows,
    "planning": _planning_rows,
    "local_rows": _local_rows_rows,
    "step_released": _faster_step_rows,
}
# Kinds of work that the aggregators are timed at.
WORKS = ("training_step", "inference")


def serving_table() -> str:
    """The search service and the bare work, before and after the application left Ray Serve's proxies: medians."""
    runs = _read("serving")

    def median(label: str, part: str, kind: str, *path: str) -> float:
        return statistics.median(reduce(dict.__getitem__, path, run[part][kind]) for run in runs[label])

    def cells(label: str, kind: str, clients: str) -> list[str]:
        if clients not in runs[label][0]["service"][kind]:
            return ["", "", ""]
        rate = median(label, "service", kind, clients, "requests_per_second")
        bare = median(label, "reference", kind, "requests_per_second")
        return [f"{rate:.0f}", f"{rate / bare:.2f}", f"{median(label, 'service', kind, clients, 'p50_ms'):.0f} ms"]

    rows = [
        [
            f"{kind}, {count} clients",
            *cells("before", kind, f"{count} clients"),
            *cells("after", kind, f"{count} clients"),
        ]
        for kind in ("text", "image")
        for count in (1, 8, 50)
    ]
    columns = ["a second", "of the bare work's rate", "median"]
    return _table(["queries", *(f"{label}: {column}" for label in ("before", "after") for column in columns)], rows)


def load_table() -> str:
    """The search service under load, before and after its limits moved before the model: medians of runs in turns."""
    runs = _read("serving_load")

    def median(label: str, *path: str) -> float:
        values: list[float] = [reduce(getitem, path, run) for run in runs[label]]
        return statistics.median(values)

    def row(name: str, *path: str) -> list[str]:
        cells = [name]
        for label in ("before", "after"):
            answered, refused = median(label, *path, "requests"), median(label, *path, "refused")
            cells += [
                f"{median(label, *path, 'requests_per_second'):.0f}",
                f"{100 * refused / (answered + refused):.0f} %",
                f"{median(label, *path, 'p99_ms') / 1e3:.2f} s",
            ]
        return cells

    rows = [
        row(f"{kind}, {clients}", kind, clients)
        for kind in ("text", "image")
        for clients in sorted(runs["after"][0][kind], key=lambda name: int(name.split()[0]))
    ]
    rows.append(row("500 requests by 50 clients, 20 slow ones", "burst"))
    bomb = [
        f"{median(label, 'chunk_bomb', 'longest_search_meanwhile_ms') / 1e3:.2f} s" for label in ("before", "after")
    ]
    rows.append(["a search while a PNG of 394,000 chunks is uploaded", "", "", bomb[0], "", "", bomb[1]])
    head = [
        "before: answers a second",
        "refused",
        "99 of 100 within",
        "after: answers a second",
        "refused",
        "99 of 100 within",
    ]
    return _table(["queries", *head], rows)


def retraining_table() -> str:
    """The table of four days of retraining on new photographs."""
    names = {"first": "4,000 photographs", "more": "2,000 more", "none": "nothing", "poisoned": "the poisoned batch"}
    rows = []
    for key, day in _read("retraining_days")["days"].items():
        if "data" not in day:
            rows.append([names[key], "nothing", "", day["outcome"], f"{day['seconds']:.0f} s"])
            continue
        shards = day["data"]["train"]["shards"]["extract"]
        new = sum(split["new_images"] for split in day["data"].values())
        made = f"{new:,} photographs; {shards['taken_over']} of {shards['all']} training shards reused"
        rsum = f"{day['rsum']:.1f} ({day['rsum_low']:.1f} to {day['rsum_high']:.1f})"
        decision = f"{day['outcome']}: {day['decision']['reason']}"
        rows.append([names[key], made, rsum, decision, f"{day['seconds']:.0f} s"])
    return _table(["what came", "extracted", "dev RSUM", "decision", "took"], rows)


def sizing_tables() -> dict[str, Callable[[], str]]:
    """Name -> the table of docs/sizing.md, from the figures that ship with the package."""
    machines, measured = Machines(), Measured(**shipped_figures(RESULTS))
    tables = {"sizing data": data_table, "sizing step": step_table, "sizing limits": limits_table}
    estimates = {name: lambda table=table: _table(*table(machines, measured)) for name, table in tables.items()}
    return {"sizing run": lambda: _table(*run_table(RESULTS)), **estimates}


TABLES: dict[str, Callable[[], str]] = {
    "univse retrieval": lambda: univse_table(RETRIEVAL_HEADER, retrieval_rows),
    "univse attacks": lambda: univse_table(ATTACK_HEADER, attack_rows),
    "univse dependencies": lambda: univse_table(DEPENDENCY_HEADER, dependency_rows),
    "gru start": gru_start_table,
    "losses": losses_table,
    **{name: partial(leaderboard_table, features) for name, features in GRIDS.items()},
    "short leaderboard": lambda: leaderboard_table(GRIDS["leaderboard"], TELLING),
    "regularisers": regularisers_table,
    "search": search_table,
    "adpool": adpool_table,
    "views": views_table,
    "released step": released_step_table,
    "gpu recurrence": gpu_recurrence_table,
    "gpu step": gpu_step_table,
    "gpu extraction": gpu_extraction_table,
    "parser quality": parser_table,
    "univse balance": balance_table,
    "gpo study": gpo_study_table,
    "retraining": retraining_table,
    "serving": serving_table,
    "load": load_table,
    "speed": speed_table,
    "scale": scale_table,
    "failures": failures_table,
    "training failures": training_failures_table,
    "attacks": attacks_table,
    **sizing_tables(),
}


def rewritten(text: str) -> str:
    """Return a page with every marked table made from the results."""

    def block(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n{TABLES[found[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- ([a-z ]+) -->\n.*?<!-- end -->", block, text, flags=re.DOTALL)


def published() -> dict[Path, str]:
    """Path -> its text by the recorded results, of every page and of the figures in the package."""
    pages = {page: rewritten(page.read_text(encoding="utf-8")) for page in PAGES}
    missing = [name for name in TABLES if not any(f"<!-- {name} -->" in text for text in pages.values())]
    if missing:
        raise SystemExit(f"no page has a block <!-- {missing[0]} --> ... <!-- end -->")
    return pages | {FIGURES: json.dumps(shipped_figures(RESULTS), indent=1) + "\n"}


def _read(name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return result


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def main() -> None:
    """Rewrite what is published, or only compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="exit with 1 if anything is out of date")
    check = parser.parse_args().check
    for path, text in published().items():
        if not check:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path}: not made from the recorded results; run python tests/benchmarks/tables.py")
    if not check:
        draw(_read("leaderboard")["features"]).savefig(PLOT, dpi=110)


if __name__ == "__main__":
    main()

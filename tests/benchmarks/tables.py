"""Write the tables of README and docs/ and their plot from the recorded results.

Run: python tests/benchmarks/tables.py, with `--check` to only compare
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any

from leaderboard_plot import draw
from univse_tables import (
    ATTACK_HEADER,
    DEPENDENCY_HEADER,
    IMAGE_HEADER,
    RETRIEVAL_HEADER,
    attack_rows,
    dependency_rows,
    image_rows,
    retrieval_rows,
)

from infra.sizing import Workload, rows

ROOT = Path(__file__).resolve().parents[2]
PLOT = ROOT / "docs/images/leaderboard.png"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
RESULTS = Path(__file__).with_name("results")


def univse_table(header: list[str], rows: Callable[[dict[str, Any]], list[list[str]]]) -> str:
    """A table of UniVSE and its baselines, from the study of them all."""
    return _table(header, rows(_read("univse_systems")))


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
    hubs = _read("hubs")
    floor = {f"linear CCA {kind}": [row] for kind, row in _read("linear_cca")[features]["rows"].items()}
    recalls = {} if names else {f"{way} R@1 / 5 / 10": short for short, way in DIRECTIONS.items()}
    rows = []
    for name, row in sorted(found["summary"].items(), key=lambda item: -item[1]["rsum"]):
        if names is not None and name not in names:
            continue
        runs = list(found["runs"].get(name, {}).values())
        minutes = statistics.median(run["training_seconds"] for run in runs) / 60 if runs else 0.0
        cost = f"{row['seeds']} x {minutes:.0f}" if runs else ""
        rsum = f"**{row['rsum']:.1f}** ({row['interval'][0]:.0f} to {row['interval'][1]:.0f})"
        over = [_difference(row["over"].get(other)) for other in ("VSE++", "linear CCA TF-IDF")]
        means = [_mean_recalls(runs or floor[name], way) for way in recalls.values()]
        corrected, gain = hubs["summary"][features].get(name), "-"
        if corrected is not None:
            gain = "{:.1f} ({:+.1f}, {:.1f} to {:.1f})".format(corrected["rsum_corrected"], *corrected["gain"])
            seeds = len(hubs["features"][features].get(name, {}))
            gain += f", {seeds} of {row['seeds']} seeds" if 0 < seeds < row["seeds"] else ""
        rows.append([name, *means, rsum, gain, *over, cost])
    columns = ["RSUM", "hubs corrected (gain)", "over VSE++", "over linear CCA, TF-IDF", "seeds x minutes"]
    return _table(["", *recalls, *columns], rows)


def _mean_recalls(runs: Sequence[dict[str, Any]], way: str) -> str:
    """R@1, R@5 and R@10 of a direction, the means over runs."""
    return " / ".join(f"{statistics.mean(run['metrics'][f'{way}_r{k:02}'] for run in runs):.1f}" for k in (1, 5, 10))


def _difference(over: Sequence[float] | None) -> str:
    """A difference with its interval, or nothing."""
    return "" if over is None else f"{over[0]:+.1f} ({over[1]:+.1f} to {over[2]:+.1f})"


def hub_table() -> str:
    """What hub correction is worth on each set of features, with the lead of linear CCAs that are corrected too."""
    record, linear = _read("hubs"), _read("linear_cca")
    rows = []
    for features, found in record["summary"].items():
        for name, row in sorted(found.items(), key=lambda item: -item[1]["rsum_corrected"]):
            kind = name.removeprefix("linear CCA ")
            runs = record["features"][features].get(name) or {"0": linear[features]["rows"][kind]["corrected"]}
            temperatures = sorted({f"{run['temperature']:.3g}" for run in runs.values()})
            source = next(iter(runs.values()))["source"]
            errors = [statistics.mean(run["calibration_error"][way] for run in runs.values()) for way in DIRECTIONS]
            over = [_difference(row["over"].get(f"linear CCA {floor}")) for floor in ("TF-IDF", "MiniLM")]
            rows.append(
                [
                    f"{name}, {features.partition(',')[0]}",
                    str(row["seeds"]),
                    f"{', '.join(temperatures)}, {source}",
                    f"{row['rsum']:.1f}",
                    f"**{row['rsum_corrected']:.1f}** ({row['interval'][0]:.0f} to {row['interval'][1]:.0f})",
                    _difference(row["gain"]),
                    *over,
                    " / ".join(f"{error:.3f}" for error in errors),
                ]
            )
    head = ["", "seeds", "temperature", "RSUM", "corrected", "gain", "over corrected CCA, TF-IDF", "MiniLM"]
    return _table([*head, "calibration error, image to text / text to image"], rows)


def hub_study_table() -> str:
    """What hub correction adds to RSUM by one choice after another."""
    study = _read("hubs")["study"]
    rows = []
    for choice in ("captions in the bank", "temperature", "one direction", "CSLS, neighbours"):
        values = study[choice]
        ordered = sorted(values, key=float) if choice != "one direction" else list(values)
        gains = "; ".join(f"{value}: {_difference(values[value])}" for value in ordered)
        rows.append([choice, gains])
    other = "not admissible: the development split as its own bank"
    return _table(["choice", "gain of RSUM"], [*rows, [other, _difference(study[other])]])


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


def graphs_table() -> str:
    """Milliseconds of a step on a GPU by precision, replayed from graphs or not, and how much faster than released."""
    ways = ("float32, no graph", "float32", "tf32", "bf16, no graph", "bf16")
    rows = []
    for device, measured in _read("step_released")["processors"].items():
        for label, row in measured["rows"].items() if device.startswith("NVIDIA") else ():
            faster, seconds = row["times_faster"], row["seconds"]
            cells = (f"{_seconds(seconds[way])}, {faster[way]:.2f} x" for way in ways)
            rows.append([f"{device}, {label}", _seconds(seconds["released"]), *cells])
    return _table(["B = 128", "released", *ways], rows)


def gpu_step_table() -> str:
    """Pairs a second and memory of whole steps on a GPU, in each precision, and of the straightforward way."""
    rows = []
    for preset, measured in _read("presets")["presets"].items():
        for way in ("straightforward", "float32", "tf32", "bf16"):
            found = measured[way]
            faster = f"{found['times_straightforward']:.2f} x" if way != "straightforward" else ""
            rate, memory = f"{found['samples_per_second']:,.0f}", f"{found['peak_memory_gb']:.1f} GB"
            rows.append([measured["device"], f"{preset}, B = {measured['batch']}", way, rate, memory, faster])
    return _table(["device", "", "", "pairs a second", "memory", "faster by"], rows)


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


def _training_rows(result: dict[str, Any]) -> list[list[str]]:
    share = f"{100 * result['share_waiting_for_data']:.2f} % of it waiting for data"
    return [
        ["training step, VSE-infinity, 49 x 1280, D = 512, B = 128", f"{result['seconds_per_step']:.2f} s", share],
    ]


def _extraction_rows(result: dict[str, Any]) -> list[list[str]]:
    rows = []
    for actors, measured in result["by_actors"].items():
        rate = f"{measured['stage']['images_per_second']:.1f} images a second"
        compared = f"{measured['ratio']:.2f} x a bare loop over the network on as many cores"
        rows.append([f"extraction, MobileNetV2 at 224 x 224, decoding included, actors: {actors}", rate, compared])
    return rows


def _parsing_rows(result: dict[str, Any]) -> list[list[str]]:
    rows = []
    for cores, label in (("one_core", "1 core"), ("two_cores", "2 cores")):
        rate = f"{result[cores]['stage_captions_per_second']:,.0f} captions a second"
        rows.append([f"parsing captions to graphs, {label}", rate, f"{result[cores]['ratio']:.2f} x bare `nlp.pipe`"])
    return rows


def _evaluation_rows(result: dict[str, Any]) -> list[list[str]]:
    coco = result["coco"]["result"]
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
    "extraction": _extraction_rows,
    "parsing": _parsing_rows,
    "evaluation": _evaluation_rows,
    "efficiency": _efficiency_rows,
}


def serving_table() -> str:
    """The search service in its own process and on Ray Serve, next to the bare work: medians of the runs."""
    runs = _read("serving")

    def median(*path: str) -> float:
        return statistics.median(reduce(getitem, path, run) for run in runs)

    rows = []
    for kind in ("text", "image"):
        bare = median("reference", kind, "requests_per_second")
        for clients in ("1 clients", "8 clients", "50 clients"):
            row = [f"{kind}, {clients.replace('1 clients', '1 client')}"]
            for service in ("own process", "Ray Serve"):
                rate = median(service, kind, clients, "requests_per_second")
                row += [f"{rate:.0f} ({rate / bare:.2f})", f"{median(service, kind, clients, 'p50_ms'):.0f} ms"]
            rows.append(row)
    services = ("own process, a second", "median", "Ray Serve, a second", "median")
    return _table(["queries", *services], rows)


# What comes with a night.
_COMES = {
    "new": "20 new images",
    "none": "nothing new, or what a kill had left",
    "killed": "20 new images, SIGKILL in training",
    "bad": "20 images with captions of others",
    "two at once": "20 new images, two starts at once",
}


def nights_table() -> str:
    """The nights of a schedule by what came: outcomes, medians of seconds and of requests to the storage."""
    nights, rows = _read("nights")["nights"], []
    for event, comes in _COMES.items():
        found = [night for night in nights if night["event"] == event]
        outcomes = Counter(night["outcome"] for night in found).most_common()
        medians = (f"{statistics.median(night[key] for night in found):,.0f}" for key in ("seconds", "requests"))
        rows.append([f"{len(found)}", comes, ", ".join(f"{count} {outcome}" for outcome, count in outcomes), *medians])
    return _table(["nights", "what came", "outcome", "seconds", "requests to S3"], rows)


def checkpoints_table() -> str:
    """How long a checkpoint stops training, and how long writing it takes."""
    rows = [
        [
            f"VSE-infinity, {name}",
            f"{of['parameters'] / 1e6:.0f} million",
            f"{of['bytes'] / 1e6:,.0f} MB",
            *(f"{of[key]:.2f}" for key in ("written", "stopped", "stopped_first")),
        ]
        for name, of in _read("checkpoints")["systems"].items()
    ]
    return _table(
        ["model", "parameters", "checkpoint", "copied and written, s", "training stops, s", "at the first"], rows
    )


def small_vectors_table() -> str:
    """Bytes, milliseconds and RSUM of the forms of an index's vectors."""
    found = _read("compression")["forms"]
    rows = [
        [
            f"`{form}`" if form != "full" else "full, float32",
            f"{row['bytes_an_image']:,.0f}",
            f"{row['milliseconds']:.1f} ms",
            *(f"{row[name]:.3f}" for name in ("recall_images", "recall_captions")),
            f"{row['rsum']:.1f} ({row['rsum'] - found['full']['rsum']:+.1f})"
            if form != "full"
            else f"{row['rsum']:.1f}",
        ]
        for form, row in sorted(found.items(), key=lambda item: -item[1]["bytes_an_image"])
    ]
    return _table(["", "bytes an image", "a search", "recall of images", "recall of captions", "RSUM"], rows)


def sizing_table() -> str:
    """What data of three sizes take, as `python -m infra.sizing` prints it of each."""
    loads = {
        "COCO": Workload(113_287, 5),
        "CC12M": Workload(12_400_000, 1),
        "1 billion pairs": Workload(1_000_000_000, 1),
    }
    columns = [rows(load) for load in loads.values()]
    cells = [[key, *(column[key] for column in columns)] for key in columns[0]]
    return _table(["", *loads], cells)


WRONG_PAIRS = {
    "triplet": "triplet loss",
    "triplet, drop_worst": "the same, again without the worst 40 %",
    "triplet, oracle": "the same, on the right captions alone",
    "sigmoid": "sigmoid loss",
    "complementary": "complementary loss",
}


def wrong_pairs_table() -> str:
    """RSUM by training and share of wrong captions: the mean of the seeds, the lowest and the highest."""
    rows = _read("wrong_pairs")["rows"]
    shares = sorted({row["share"] for row in rows})

    def cell(training: str, share: float) -> str:
        found = [row["trainings"][training]["rsum"] for row in rows if row["share"] == share]
        return f"{statistics.mean(found):.1f} ({min(found):.0f} to {max(found):.0f})"

    header = ["RSUM", *(f"{share:.0%} wrong" for share in shares)]
    return _table(header, [[text, *(cell(name, share) for share in shares)] for name, text in WRONG_PAIRS.items()])


TABLES: dict[str, Callable[[], str]] = {
    "univse retrieval": lambda: univse_table(RETRIEVAL_HEADER, retrieval_rows),
    "univse attacks": lambda: univse_table(ATTACK_HEADER, attack_rows),
    "univse dependencies": lambda: univse_table(DEPENDENCY_HEADER, dependency_rows),
    "univse image": lambda: _table(IMAGE_HEADER, image_rows(_read("univse_image"))),
    "univse image of all": lambda: _table(IMAGE_HEADER, image_rows(_read("univse_6000"))),
    "gru start": gru_start_table,
    **{name: partial(leaderboard_table, features) for name, features in GRIDS.items()},
    "short leaderboard": lambda: leaderboard_table(GRIDS["leaderboard"], TELLING),
    "hub correction": hub_table,
    "hub study": hub_study_table,
    "released step": released_step_table,
    "gpu recurrence": gpu_recurrence_table,
    "gpu graphs": graphs_table,
    "gpu step": gpu_step_table,
    "gpu extraction": gpu_extraction_table,
    "parser quality": parser_table,
    "gpo study": gpo_study_table,
    "serving": serving_table,
    "nights": nights_table,
    "checkpoints": checkpoints_table,
    "small vectors": small_vectors_table,
    "speed": speed_table,
    "sizing": sizing_table,
    "wrong pairs": wrong_pairs_table,
}


def rewritten(text: str) -> str:
    """Return a page with every marked table made from the results."""

    def block(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n{TABLES[found[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- ([a-z ]+) -->\n.*?<!-- end -->", block, text, flags=re.DOTALL)


def published() -> dict[Path, str]:
    """Path -> its text by the recorded results, of every page."""
    pages = {page: rewritten(page.read_text(encoding="utf-8")) for page in PAGES}
    missing = [name for name in TABLES if not any(f"<!-- {name} -->" in text for text in pages.values())]
    if missing:
        raise SystemExit(f"no page has a block <!-- {missing[0]} --> ... <!-- end -->")
    return pages


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

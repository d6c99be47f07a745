"""Tables of UniVSE and its baselines: means over the seeds, with 95 % intervals."""

from __future__ import annotations

import statistics
from typing import Any

from scipy.stats import t

COMPONENTS = ("objects", "attributes", "relations")
ATTACKS = ("object", "attribute", "relation")
VSE_C_ATTACKS = ("vse_c_noun", "vse_c_numeral", "vse_c_relation")
RETRIEVAL_HEADER = ["", "RSUM", "image to text R@1", "text to image R@1", "mAP: objects, attributes, relations", "sum"]
ATTACK_HEADER = ["", "object / attribute / relation", "sum", "nouns / numerals / relations of VSE-C"]
IMAGE_HEADER = ["", "RSUM", "under attack", "which noun", "the image adds", "which colour", "the image adds"]
DEPENDENCY_HEADER = ["", "accuracy", "with a wrong image", "the image contributes"]
DEPENDENCIES = {
    "attributes_global": "attributes, global vector",
    "attributes_regions": "attributes, best region",
    "attributes_relative": "attributes, best region above the noun's",
    "relations_global": "relations, global vector",
}

Runs = list[dict[str, float]]


def retrieval_rows(result: dict[str, Any]) -> list[list[str]]:
    """Retrieval of sentences, and of images by components."""
    chance = [" / ".join(f"{_mean(_any(result), f'components/{kind}_map_chance'):.1f}" for kind in COMPONENTS)]
    rows = [["chance", "", "", "", *chance, ""]]
    for label, runs in _systems(result):
        maps = " / ".join(f"{_mean(runs, f'components/{kind}_map'):.2f}" for kind in COMPONENTS)
        figures = [interval(runs, metric) for metric in ("rsum", "i2t_r01", "t2i_r01")]
        rows.append([f"**{label}**", *figures, maps, interval(runs, "components/sum", 2)])
    return rows


def attack_rows(result: dict[str, Any]) -> list[list[str]]:
    """Sums of the recalls of image to text under each attack."""
    rows = []
    for label, runs in _systems(result):
        first = [run for run in runs if f"attack/{VSE_C_ATTACKS[0]}_recall_sum" in run]
        rows.append([f"**{label}**", _sums(runs, ATTACKS), interval(runs, "attack/total"), _sums(first, VSE_C_ATTACKS)])
        if "attack_sentences/total" in runs[0]:
            rows.append(["the same, sentences alone", "", interval(runs, "attack_sentences/total"), ""])
    return rows


def dependency_rows(result: dict[str, Any]) -> list[list[str]]:
    """Accuracy of dependencies, beside that with a wrong image, and the difference with its interval over the seeds."""
    rows = []
    for kind, of in DEPENDENCIES.items():
        chance = _mean(_any(result), f"dependencies/{kind.partition('_')[0]}_chance")
        rows.append([f"*{of}*", f"chance {chance:.1f}", "", ""])
        for label, runs in _systems(result):
            if f"dependencies/{kind}_accuracy" in runs[0]:
                metrics = ("accuracy", "wrong_image", "contribution")
                rows.append([f"**{label}**", *(interval(runs, f"dependencies/{kind}_{metric}") for metric in metrics)])
    return rows


def image_rows(result: dict[str, Any]) -> list[list[str]]:
    """What the image adds to telling an adjective's noun and a noun's colour, by the best region or the only vector."""
    rows = []
    for label, runs in _systems(result):
        attacked = [run for run in runs if "attack/total" in run]
        cells = [interval(runs, "rsum"), interval(attacked, "attack/total") if attacked else ""]
        for kind in ("attributes", "colours"):
            right, wrong = (_mean(runs, f"dependencies/{kind}_{of}") for of in ("accuracy", "wrong_image"))
            cells += [f"{right:.1f}, {wrong:.1f}", interval(runs, f"dependencies/{kind}_contribution")]
        rows.append([f"**{label}**", *cells])
    return rows


def interval(runs: Runs, metric: str, digits: int = 1) -> str:
    """Return a mean over seeds and half of its 95 % interval (Student's t); of fewer than three each value."""
    values = [run[metric] for run in runs]
    if len(values) < 3:
        return ", ".join(f"{value:.{digits}f}" for value in values) + " (one seed)" * (len(values) == 1)
    half = t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):.{digits}f} ± {half:.{digits}f}"


def _systems(result: dict[str, Any]) -> list[tuple[str, Runs]]:
    rows = result["rows"].items()
    return [(label, [run["metrics"] for _, run in sorted(seeds.items())]) for label, seeds in rows if seeds]


def _any(result: dict[str, Any]) -> Runs:
    return _systems(result)[0][1]


def _mean(runs: Runs, metric: str) -> float:
    return statistics.mean(run[metric] for run in runs)


def _sums(runs: Runs, attacks: tuple[str, ...]) -> str:
    return " / ".join(f"{_mean(runs, f'attack/{attack}_recall_sum'):.1f}" for attack in attacks)

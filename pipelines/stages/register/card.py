"""The card of a registered model: what it was made from and how, how good it is, what it is for, who owns the parts.

Mitchell et al., "Model Cards for Model Reporting" (2019), as far as a pipeline can know it; the rest is for people to
say, in `registry.card`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipelines.config import CardConfig
from pipelines.config.datasets import Dataset
from pipelines.config.features import Features
from pipelines.config.model import ModelConfig
from pipelines.config.training import TrainingConfig
from pipelines.kinds import LossConfig
from pipelines.registry.models import MODEL_CARD

# The most that MLflow's database keeps of a version's description.
DESCRIPTION_CHARACTERS = 5000

# The uses of a model whose owner names none.
INTENDED_USE = (
    "Finding images by sentences and sentences by images, of the kind that the model was trained on. Not for decisions "
    "about people: the model says what looks alike, not what is true."
)
_UNSAID = "Not stated: set {} in the configuration."
_GENERATED = "Generated images and captions, which this project publishes under its own licence."
_RANDOM = "Random weights, of this project's own making."
_WAYS = {"i2t": "image to text", "t2i": "text to image"}


def model_card(name: str, summary: str, sections: Mapping[str, Sequence[str]]) -> str:
    """Return the card of a model in Markdown: its sections by their titles, each with its lines."""
    text = "\n\n".join(f"## {title}\n\n{chr(10).join(lines)}" for title, lines in sections.items())
    return f"# {name}\n\n{summary}\n\n{text}\n"


def description(card: str) -> str:
    """Return a card as the description of a version, which may not be longer than MLflow's database allows."""
    rest = f"\n\n(The complete card is {MODEL_CARD} in the artifacts of the run.)"
    if len(card) <= DESCRIPTION_CHARACTERS:
        return card
    lines = card[: DESCRIPTION_CHARACTERS - len(rest)].splitlines()
    return "\n".join(lines[:-1]) + rest


def metrics_table(metrics: Mapping[str, float], split: str, folds: int) -> list[str]:
    """Return a table of recalls both ways; their 95 % intervals are in `metrics` as NAME_low and NAME_high."""
    names = {"rsum": "RSUM"} | {f"{way}_r{k:02}": f"{said}, R@{k}" for way, said in _WAYS.items() for k in (1, 5, 10)}
    suffixes = {"value": "", "hubs corrected": "_corrected"}
    columns = {title: suffix for title, suffix in suffixes.items() if f"rsum{suffix}" in metrics}
    rows = [
        (said, *(_interval(f"{name}{suffix}", metrics) for suffix in columns.values()))
        for name, said in names.items()
        if name in metrics
    ]
    others = sorted({name.partition("/")[0] for name in metrics if "/" in name})
    more = [f"\nFurther protocols, in the run: {', '.join(others)}."] if others else []
    if "t2i_calibration_error" in metrics:
        errors = " and ".join(f"{metrics[f'{way}_calibration_error']:.3f} ({said})" for way, said in _WAYS.items())
        more.append(f"\nExpected calibration error of a first hit's confidence: {errors}.")
    mean = f", mean of {folds} folds" if folds > 1 else ""
    intro = f"On the split `{split}`{mean}, with 95 % intervals of a bootstrap over the images.\n"
    return [intro, *_table(("metric", *columns), rows), *more]


def _interval(name: str, metrics: Mapping[str, float]) -> str:
    low, high = metrics.get(f"{name}_low"), metrics.get(f"{name}_high")
    return f"{metrics[name]:.1f}" + ("" if low is None or high is None else f" ({low:.1f} to {high:.1f})")


def data_table(dataset: Dataset, feature: str, splits: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a table of the splits, from the manifests of their extraction."""
    used = {dataset.train_split: "training", dataset.eval_split: "selection and metrics"}
    rows = [
        (
            f"`{split}` ({used[split]})",
            f"{manifest['counts']['images']:,}",
            f"{manifest['counts']['captions']:,}",
            *(f"{number:,}" for number in _skipped(manifest)),
            f"`{manifest['fingerprint'][:16]}`",
        )
        for split, manifest in splits.items()
    ]
    intro = f"Format `{dataset.format}`, features `{feature}`.\n"
    return [intro, *_table(("split", "images", "captions", "skipped images", "skipped captions", "fingerprint"), rows)]


def _skipped(manifest: Mapping[str, Any]) -> tuple[int, int]:
    captions = sum("caption_id" in item for item in manifest["skipped"])
    return len(manifest["skipped"]) - captions, captions


def training_list(
    training: TrainingConfig, loss: LossConfig, model: ModelConfig, manifest: Mapping[str, Any]
) -> list[str]:
    """Return the hyperparameters of a training, with its best epoch and its time from the manifest."""
    epochs = [metrics["rsum"] for metrics in manifest["history"]]
    best = max(range(len(epochs)), key=epochs.__getitem__) + 1
    begun = model.begins_with(training.initial)
    if not training.epochs:
        return [f"- weights: {begun}", f"- epochs: 0 ({model.untrained(training.initial)}): nothing was trained"]
    rows = {
        "loss": ", ".join(f"{name} {value}" for name, value in loss.model_dump(mode="json").items()),
        "begins with": begun,
        "epochs": f"{training.epochs}, the best is {best}",
        "batch": f"{training.batch_size} pairs",
        "learning rate": f"{training.learning_rate:g}, decay {training.decay.name}, warmup {training.warmup}",
        "weight decay": f"{training.weight_decay:g}",
        "precision": training.precision,
        "time": f"{manifest['seconds']:,.0f} s",
    }
    return [f"- {name}: {value}" for name, value in rows.items()]


def licences(card: CardConfig, data_format: str, weights: Sequence[str]) -> list[str]:
    """Return the owners of the data and of the pretrained weights, as far as the configuration names them."""
    data = card.data_licence or (
        _GENERATED if data_format == "scenes" else _UNSAID.format("registry.card.data_licence")
    )
    owner = card.weights_licence or _UNSAID.format("registry.card.weights_licence")
    built_on = f"{', '.join(f'`{name}`' for name in weights)}. {owner}" if weights else _RANDOM
    return [f"- Data: {data}", f"- Weights it builds on: {built_on}"]


def pretrained(features: Features, model: ModelConfig) -> list[str]:
    """Names of the pretrained weights that a model builds on: of extractor, encoders and word vectors."""
    sections = [section.model_dump(mode="json") for section in (features, model.image, model.text)]
    sections = [section for section in sections if section.get("random_seed") is None]
    found = (section.get(key) for section in sections for key in ("weights", "word_vectors"))
    return list(dict.fromkeys(str(name) for name in found if name is not None))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]

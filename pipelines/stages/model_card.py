"""The card of a registered model: what it was made from and how, how good it is, what it is for, who owns the parts.

Mitchell et al., "Model Cards for Model Reporting" (2019), as far as a pipeline can know it; the rest is for people to
say, in `registry.card`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.config import PipelineConfig

FILE = "model_card.md"
# The most that MLflow's database keeps of a version's description.
DESCRIPTION_CHARACTERS = 5000

_UNSAID = "Not stated: set {} in the configuration."
_INTENDED_USE = (
    "Finding images by sentences and sentences by images, of the kind that the model was trained on. Not for decisions "
    "about people: the model says what looks alike, not what is true."
)
_GENERATED = "Generated images and captions, which this project publishes under its own licence."
_RANDOM = "Random weights, of this project's own making."
_WAYS = {"i2t": "image to text", "t2i": "text to image"}


@dataclass(frozen=True)
class Evidence:
    """Findings of the stages about a model.

    Attributes:
        splits: split -> the manifest of its extraction.
        training: manifest of the training.
        metrics: of the evaluation split, with intervals as NAME_low and NAME_high.
        tags: of the version: fingerprints, seed, code version.
    """

    splits: Mapping[str, Mapping[str, Any]]
    training: Mapping[str, Any]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]


def model_card(config: PipelineConfig, evidence: Evidence) -> str:
    """Write the card of a model, in Markdown."""
    card = config.registry.card
    sections = {
        "Intended use": [card.intended_use or _INTENDED_USE],
        "Metrics": _metrics(config, evidence.metrics),
        "Data": _data(config, evidence.splits),
        "Configuration": _configuration(config, evidence.training),
        "Licences": [f"- Data: {_data_licence(config)}", f"- Weights it builds on: {_weights_licence(config)}"],
        "Origin": [f"- {name.removeprefix('vse.')}: `{value}`" for name, value in sorted(evidence.tags.items())],
    }
    text = "\n\n".join(f"## {title}\n\n{chr(10).join(lines)}" for title, lines in sections.items())
    return f"# {config.registered_model}\n\n{_summary(config)}\n\n{text}\n"


def description(card: str) -> str:
    """Return a card as the description of a version, which may not be longer than MLflow's database allows."""
    rest = f"\n\n(The whole card is {FILE} in the artifacts of the run.)"
    if len(card) <= DESCRIPTION_CHARACTERS:
        return card
    lines = card[: DESCRIPTION_CHARACTERS - len(rest)].splitlines()
    return "\n".join(lines[:-1]) + rest


def _summary(config: PipelineConfig) -> str:
    return (
        f"A model of images and sentences in one space ({config.preset}): image side {config.model.image.name}, text "
        f"side {config.model.text.name}, {config.model.embed_dim} dimensions."
    )


def _metrics(config: PipelineConfig, metrics: Mapping[str, float]) -> list[str]:
    """Return a table of recalls both ways, with 95 % intervals of a bootstrap over the images."""
    names = {"rsum": "RSUM"} | {f"{way}_r{k:02}": f"{said}, R@{k}" for way, said in _WAYS.items() for k in (1, 5, 10)}
    rows = [(said, _interval(name, metrics)) for name, said in names.items() if name in metrics]
    others = sorted({name.partition("/")[0] for name in metrics if "/" in name})
    more = [f"\nFurther protocols, in the run: {', '.join(others)}."] if others else []
    folds = f", mean of {config.evaluation.folds} folds" if config.evaluation.folds > 1 else ""
    intro = f"On the split `{config.dataset.eval_split}`{folds}, with 95 % intervals of a bootstrap over the images.\n"
    return [intro, *_table(("metric", "value"), rows), *more]


def _interval(name: str, metrics: Mapping[str, float]) -> str:
    low, high = metrics.get(f"{name}_low"), metrics.get(f"{name}_high")
    return f"{metrics[name]:.1f}" + ("" if low is None or high is None else f" ({low:.1f} to {high:.1f})")


def _data(config: PipelineConfig, splits: Mapping[str, Mapping[str, Any]]) -> list[str]:
    used = {config.dataset.train_split: "training", config.dataset.eval_split: "selection and metrics"}
    rows = [
        (
            f"`{split}` ({used[split]})",
            f"{manifest['counts']['images']:,}",
            f"{manifest['counts']['captions']:,}",
            f"{len(manifest['set_aside']):,}",
            f"`{manifest['fingerprint'][:16]}`",
        )
        for split, manifest in splits.items()
    ]
    intro = f"Format `{config.dataset.format}`, features `{config.features.member}`.\n"
    return [intro, *_table(("split", "images", "captions", "skipped", "fingerprint"), rows)]


def _configuration(config: PipelineConfig, manifest: Mapping[str, Any]) -> list[str]:
    training = config.training
    epochs = [metrics["rsum"] for metrics in manifest["history"]]
    best = max(range(len(epochs)), key=epochs.__getitem__) + 1
    begun = "random weights" if training.initial is None else "the weights of an earlier model"
    rows = {
        "loss": ", ".join(f"{name} {value}" for name, value in config.loss.model_dump(mode="json").items()),
        "begins with": begun,
        "epochs": f"{training.epochs}, the best is {best}",
        "batch": f"{training.batch_size} pairs",
        "learning rate": f"{training.learning_rate:g}, decay {training.decay.name}, warmup {training.warmup}",
        "weight decay": f"{training.weight_decay:g}",
        "precision": training.precision,
        "time": f"{manifest['seconds']:,.0f} s",
    }
    return [f"- {name}: {value}" for name, value in rows.items()]


def _data_licence(config: PipelineConfig) -> str:
    if config.registry.card.data_licence is not None:
        return config.registry.card.data_licence
    return _GENERATED if config.dataset.format == "scenes" else _UNSAID.format("registry.card.data_licence")


def _weights_licence(config: PipelineConfig) -> str:
    weights = pretrained(config)
    if not weights:
        return _RANDOM
    said = config.registry.card.weights_licence or _UNSAID.format("registry.card.weights_licence")
    return f"{', '.join(f'`{name}`' for name in weights)}. {said}"


def pretrained(config: PipelineConfig) -> list[str]:
    """Names of the pretrained weights that a model builds on: of extractors, encoders and word vectors."""
    sections = [part.model_dump(mode="json") for part in config.features.parts]
    random = [section for section in sections if section.get("random_seed") is not None]
    sections = [section for section in sections if section not in random]
    model = config.model.model_dump(mode="json")
    sections += [model["image"], model["text"]]
    found = (section.get(key) for section in sections for key in ("weights", "source", "word_vectors"))
    return list(dict.fromkeys(str(name) for name in found if name is not None))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]

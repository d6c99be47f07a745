"""Image-to-text retrieval under adversarial captions, as UniVSE (section 4.2) and VSE-C test it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from pipelines.evaluation.protocols.inputs import EvaluationInputs
from pipelines.evaluation.protocols.results import Results
from preprocessing.captions.adversarial import Adversarial, univse_attack, vse_c_attack, write_adversarials
from preprocessing.captions.adversarial.univse import UniVSEAttack
from preprocessing.captions.adversarial.vse_c import VSECAttack
from vse_core.encoders.components import combine
from vse_core.evaluation.adversarial import AttackProtocol, evaluate_attack
from vse_core.evaluation.plots import plot_alpha_sweep
from vse_core.evaluation.recall import evaluate_retrieval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The lists of adversarial captions are the same for every model and every run: their seed is no setting.
_SEED = 0
_KINDS = ("objects", "attributes", "relations")
_ALPHAS = tuple(step / 10 for step in range(11))


def attack(inputs: EvaluationInputs) -> Results:
    """Recalls under UniVSE's three attacks (5 adversarial captions a caption, shared by all images), and VSE-C's three.

    Metrics are ``attack/object_r01``, ``attack/object_recall_sum`` and so on, ``attack/total`` the sum over UniVSE's
    attacks, ``attack/vse_c_noun_r01`` and so on. For UniVSE, the same of UniVSE's attacks stand under
    ``attack_sentences/`` for sentences without components (alpha = 1), and under ``attack_objects/``,
    ``attack_attributes/`` and ``attack_relations/`` for captions with components of one kind (table 2). The adversarial
    captions are written to a file for each attack.
    """
    counts = [len(captions) for captions in inputs.captions]
    # Written as the adversarial ones are, so that nothing but the changed words tells them apart.
    texts = [caption.text for captions in inputs.captions for caption in captions]
    true = _Embedded(inputs, texts, "attack: true captions")
    parts = true.parts()
    plain = evaluate_retrieval(inputs.gallery.images_BKD, true.texts_CD, counts).image_to_text
    metrics: dict[str, float] = {"attack/none_recall_sum": plain.recall_sum}
    sweeps, files = {"none": _sweep(inputs, true, counts)}, []
    for name, (protocol, make) in _attacks(inputs).items():
        entries = list(make())
        files.append(inputs.directory / f"adversarial_{name}.jsonl")
        report = write_adversarials(files[-1], entries)
        metrics[f"attack/{name}_complete"] = float(report.complete)
        metrics[f"attack/{name}_impossible"] = float(sum(report.impossible.values()))
        if not report.adversarials:
            continue
        texts = [text for entry in entries for text in entry.texts]
        false = _Embedded(inputs, texts, f"attack: {name.replace('_', ' ')}")
        each = [len(entry.texts) for entry in entries]
        found = evaluate_attack(inputs.gallery.images_BKD, true.texts_CD, counts, false.texts_CD, each, protocol)
        metrics |= {f"attack/{name}_{key}": value for key, value in found.as_dict().items()}
        if protocol == "shared":
            sweeps[name] = _sweep(inputs, true, counts, false, each)
        fakes = false.parts() if protocol == "shared" else {}
        for part, false_CD in fakes.items():
            found = evaluate_attack(inputs.gallery.images_BKD, parts[part], counts, false_CD, each)
            metrics |= {f"attack_{part}/{name}_{key}": value for key, value in found.as_dict().items()}
    for group in ("attack", *(f"attack_{part}" for part in parts)):
        metrics[f"{group}/total"] = sum(metrics[f"{group}/{name}_recall_sum"] for name in sweeps if name != "none")
    summary = f"under attack {metrics['attack/total']:.1f} of 900 (without {plain.recall_sum:.1f} of 300)"
    return Results("attack", metrics, summary, _figures(inputs, sweeps), tuple(files))


def _attacks(inputs: EvaluationInputs) -> dict[str, tuple[AttackProtocol, Callable[[], Iterator[Adversarial]]]]:
    """Return the attacks by name: whose captions an image meets, and what makes them."""
    univse: tuple[UniVSEAttack, ...] = ("object", "attribute", "relation")
    vse_c: tuple[VSECAttack, ...] = ("noun", "numeral", "relation")
    captions, lexicon = inputs.captions, inputs.lexicon
    return {
        **{kind: ("shared", partial(univse_attack, captions, kind, lexicon, _SEED)) for kind in univse},
        **{f"vse_c_{kind}": ("own", partial(vse_c_attack, captions, kind, lexicon, _SEED)) for kind in vse_c},
    }


class _Embedded:
    """Texts embedded with a model; for UniVSE sentences and components apart, to be mixed by any alpha."""

    def __init__(self, inputs: EvaluationInputs, texts: list[str], title: str) -> None:
        embedder = inputs.texts
        components = self.components = embedder.components
        self.halves = None if components is None else components.embed_halves(embedder.batches(texts, title))
        self.texts_CD = embedder.embed(texts, title) if components is None else self.mixed(components.alpha)

    def mixed(self, alpha: float, kind: int = 0) -> Tensor:
        """Mix sentences with all components, or with those of one kind alone."""
        assert self.halves is not None
        sentences_CD, composed_CKD, has_CK = self.halves
        return combine(sentences_CD, composed_CKD[:, kind], has_CK[:, kind], alpha)

    def parts(self) -> dict[str, Tensor]:
        """Return the texts with parts of their components alone, by the part; nothing for models without components."""
        if self.components is None:
            return {}
        kinds = {kind: self.mixed(self.components.alpha, row) for row, kind in enumerate(_KINDS, start=1)}
        return {"sentences": self.mixed(1.0), **kinds}


def _sweep(
    inputs: EvaluationInputs,
    true: _Embedded,
    counts: list[int],
    false: _Embedded | None = None,
    each: list[int] | None = None,
) -> list[float]:
    """Return the sum of the recalls for every alpha; nothing for models without components."""
    if true.halves is None:
        return []
    recalls = []
    for alpha in _ALPHAS:
        if false is None or each is None:
            metrics = evaluate_retrieval(inputs.gallery.images_BKD, true.mixed(alpha), counts).image_to_text
        else:
            texts_CD, false_CD = true.mixed(alpha), false.mixed(alpha)
            metrics = evaluate_attack(inputs.gallery.images_BKD, texts_CD, counts, false_CD, each)
        recalls.append(metrics.recall_sum)
    return recalls


def _figures(inputs: EvaluationInputs, sweeps: dict[str, list[float]]) -> dict[str, Figure]:
    components = inputs.texts.components
    if components is None:
        return {}
    panels = {
        "Image to text": {"no attack": sweeps["none"]},
        "Image to text under attack": {name: values for name, values in sweeps.items() if name != "none"},
    }
    return {"alpha_sweep": plot_alpha_sweep(_ALPHAS, panels, "R@1 + R@5 + R@10 (%)", components.alpha)}

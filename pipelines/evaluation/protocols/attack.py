"""Image-to-text retrieval under adversarial captions, as UniVSE (section 4.2) and VSE-C test it."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
from torch import Tensor

from pipelines.evaluation.protocols.inputs import EvaluationInputs
from pipelines.evaluation.protocols.results import Results
from preprocessing.captions.adversarial.files import Adversarial, write_adversarials
from preprocessing.captions.adversarial.univse import UniVSEAttack, univse_attack
from preprocessing.captions.adversarial.vse_c import VSECAttack, vse_c_attack
from vse_core.encoders.components import combine
from vse_core.evaluation.adversarial import AttackProtocol, evaluate_attack
from vse_core.evaluation.plots import plot_alpha_sweep
from vse_core.evaluation.recall import evaluate_retrieval

# The lists of adversarial captions are the same for every model and every run: their seed is not a setting.
_SEED = 0
_UNIVSE: tuple[UniVSEAttack, ...] = ("object", "attribute", "relation")
_VSE_C: tuple[VSECAttack, ...] = ("noun", "numeral", "relation")
_ALPHAS = tuple(step / 10 for step in range(11))


class Attack(NamedTuple):
    """The adversarial captions of an attack, and whose an image meets: those of all images, or of its own captions."""

    name: str
    protocol: AttackProtocol
    entries: Sequence[Adversarial]


def attack(inputs: EvaluationInputs) -> Results:
    """Recalls under UniVSE's three attacks (5 adversarial captions a caption, shared by all images), and VSE-C's three.

    Metrics are ``attack/object_r01``, ``attack/object_recall_sum`` and so on, ``attack/total`` the sum over UniVSE's
    attacks, ``attack/vse_c_noun_r01`` and so on, and, without an attack, ``attack/none_rsum``, ``attack/none_i2t_r01``.
    For UniVSE, the same of UniVSE's attacks stand under ``attack_sentences/`` for sentences without components (alpha =
    1), and under ``attack_objects/``, ``attack_attributes/`` and ``attack_relations/`` for captions with components of
    one kind (table 2). The adversarial captions are written to a file for each attack.
    """
    captions, lexicon = inputs.captions, inputs.lexicon
    attacks = [Attack(kind, "shared", list(univse_attack(captions, kind, lexicon, _SEED))) for kind in _UNIVSE]
    attacks += [Attack(f"vse_c_{kind}", "own", list(vse_c_attack(captions, kind, lexicon, _SEED))) for kind in _VSE_C]
    return evaluate_attacks(inputs, attacks)


def evaluate_attacks(inputs: EvaluationInputs, attacks: Sequence[Attack]) -> Results:
    """Evaluate a model under these attacks; metrics are those of `attack`."""
    images_BKD, counts = inputs.gallery.images_BKD, [len(captions) for captions in inputs.captions]
    # Written as the adversarial ones are, so that nothing but the changed words tells them apart.
    texts = [caption.text for captions in inputs.captions for caption in captions]
    true = _Captions(inputs, texts, "attack: true captions")
    unharmed = evaluate_retrieval(images_BKD, true.groups["attack"], counts)
    plain = unharmed.image_to_text
    metrics = {"attack/none_recall_sum": plain.recall_sum}
    metrics |= {f"attack/none_{name}": value for name, value in unharmed.as_dict().items()}
    metrics |= {f"{group}/total": 0.0 for group in true.groups}
    sweeps, files = {}, []
    for name, protocol, entries in attacks:
        files.append(inputs.directory / f"adversarial_{name}.jsonl")
        report = write_adversarials(files[-1], entries)
        metrics[f"attack/{name}_complete"] = float(report.complete)
        metrics[f"attack/{name}_impossible"] = float(report.impossible)
        if not report.adversarials:
            continue
        false = _Captions(inputs, [text for entry in entries for text in entry.texts], f"attack: {name}")
        each = [len(entry.texts) for entry in entries]
        for group in false.groups if protocol == "shared" else ("attack",):
            found = evaluate_attack(images_BKD, true.groups[group], counts, false.groups[group], each, protocol)
            metrics |= {f"{group}/{name}_{key}": value for key, value in found.as_dict().items()}
            metrics[f"{group}/total"] += found.recall_sum if protocol == "shared" else 0.0
        if protocol == "shared" and true.has_components:
            sweeps[name] = [
                evaluate_attack(images_BKD, true.mixed(alpha), counts, false.mixed(alpha), each).r01
                for alpha in _ALPHAS
            ]
    summary = f"under attack {metrics['attack/total']:.1f} of 900 (without {plain.recall_sum:.1f} of 300)"
    return Results("attack", metrics, summary, _figures(inputs, true, counts, sweeps), tuple(files))


class _Captions:
    """Captions embedded with a model; for UniVSE sentences and components apart, to be mixed by any alpha.

    `groups` has their vectors by the group of metrics: of the captions, and of sentences and each kind of components.
    """

    def __init__(self, inputs: EvaluationInputs, texts: list[str], title: str) -> None:
        embedder = inputs.texts
        self.has_components = embedder.components is not None
        if embedder.components is None:
            self.groups = {"attack": embedder.embed(texts, title)}
            return
        self._halves = embedder.components.embed_halves(embedder.batches(texts, title))
        alpha = embedder.components.alpha
        self.groups = {
            "attack": self.mixed(alpha),
            "attack_sentences": self.mixed(1.0),
            "attack_objects": self.mixed(alpha, 1),
            "attack_attributes": self.mixed(alpha, 2),
            "attack_relations": self.mixed(alpha, 3),
        }

    def mixed(self, alpha: float, kind: int = 0) -> Tensor:
        """Mix sentences with all components (kind 0), or with those of one kind."""
        sentences_CD, composed_CKD, has_CK = self._halves
        return combine(sentences_CD, composed_CKD[:, kind], has_CK[:, kind], alpha)


def _figures(
    inputs: EvaluationInputs, true: _Captions, counts: list[int], sweeps: dict[str, list[float]]
) -> dict[str, Figure]:
    """Plot the recalls over alpha (UniVSE, figure 5); nothing for models without components."""
    if inputs.texts.components is None:
        return {}
    images_BKD = inputs.gallery.images_BKD
    plain = [evaluate_retrieval(images_BKD, true.mixed(alpha), counts) for alpha in _ALPHAS]
    both = {
        "image to text": [found.image_to_text.r01 for found in plain],
        "text to image": [found.text_to_image.r01 for found in plain],
    }
    panels = {"Without an attack": both, "Image to text under attack": sweeps}
    return {"alpha_sweep": plot_alpha_sweep(_ALPHAS, panels, "R@1 (%)", inputs.texts.components.alpha)}

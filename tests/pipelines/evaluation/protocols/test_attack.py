"""Attacks on captions with all components, with none, and with those of one kind (UniVSE, table 2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from pipelines.evaluation.protocols.attack import Attack, evaluate_attacks
from preprocessing.captions.adversarial.files import Adversarial

IMAGES, DIM, ALPHA = 12, 5, 0.25


class Components:
    """Sentences and four kinds of components of each text, drawn at random by its hash."""

    alpha = ALPHA

    def embed_halves(self, batches: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
        parts_CPD = torch.stack([parts_of(text) for text in batches])
        has_CK = torch.tensor([[(len(text) + kind) % 3 > 0 for kind in range(4)] for text in batches])
        return parts_CPD[:, 0], parts_CPD[:, 1:], has_CK


def parts_of(text: str) -> Tensor:
    """One sentence and four sums of components: (5, D) unit vectors."""
    generator = torch.Generator().manual_seed(sum(ord(letter) * place for place, letter in enumerate(text, start=1)))
    return torch.nn.functional.normalize(torch.randn(5, DIM, generator=generator), dim=1)


def caption_vector(text: str, alpha: float, kind: int) -> Tensor:
    """The vector of a caption with these components, by the paper's formula."""
    if (len(text) + kind) % 3 == 0:
        return parts_of(text)[0]
    mixed_D = alpha * parts_of(text)[0] + (1 - alpha) * parts_of(text)[1 + kind]
    return mixed_D / mixed_D.norm()


def recall_sum(images_BD: Tensor, true: list[str], false: list[str], alpha: float, kind: int) -> float:
    """R@1 + R@5 + R@10 of each image's one caption among all true and adversarial ones, in plain Python."""
    vectors = [caption_vector(text, alpha, kind) for text in (*true, *false)]
    total = 0.0
    for number, image_D in enumerate(images_BD):
        scores = [float(image_D @ vector) for vector in vectors]
        rank = sum(score > scores[number] for score in scores)
        total += 100 / len(true) * sum(rank < cutoff for cutoff in (1, 5, 10))
    return total


def test_each_part_of_the_components_has_its_row(tmp_path: Path) -> None:
    images_BD = torch.nn.functional.normalize(torch.randn(IMAGES, DIM, generator=torch.Generator().manual_seed(3)))
    true = [f"{'very ' * (n % 4)}true {n}" for n in range(IMAGES)]
    false = [[f"false {n}{'!' * m}" for m in range(2)] for n in range(IMAGES)]
    entries = [Adversarial(str(n), str(n), "object", true[n], tuple(false[n])) for n in range(IMAGES)]
    inputs = SimpleNamespace(
        captions=[[SimpleNamespace(text=text)] for text in true],
        gallery=SimpleNamespace(images_BKD=images_BD.unsqueeze(1)),
        texts=SimpleNamespace(components=Components(), batches=lambda texts, _: texts),
        directory=tmp_path,
    )
    found = evaluate_attacks(cast("Any", inputs), [Attack("object", "shared", entries)]).metrics
    rows = {"": (ALPHA, 0), "_sentences": (1.0, 0), "_objects": (ALPHA, 1), "_attributes": (ALPHA, 2)}
    for part, (alpha, kind) in {**rows, "_relations": (ALPHA, 3)}.items():
        expected = recall_sum(images_BD, true, [text for texts in false for text in texts], alpha, kind)
        assert found[f"attack{part}/object_recall_sum"] == pytest.approx(expected)
        assert found[f"attack{part}/total"] == pytest.approx(expected)
    assert len({found[f"attack{part}/total"] for part in ("", "_sentences", "_objects", "_attributes")}) > 2

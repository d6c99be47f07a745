"""The plugin PCME++: its loss against loops over the equations, its distance against samples, and that it trains."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.config import ConfigError, PipelineConfig, load_config
from pipelines.kinds.inputs import SplitData
from pipelines.stages.extract import plan as extract
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.loading.batch import pad_tokens
from preprocessing.shards.reader import ShardReader
from tests.pipelines.stages.extract.test_checks import make
from tests.pipelines.training.by_hand import quiet_trainer
from tests.test_extending import unloaded  # noqa: F401 (forgets the plugin after each test)
from vse_core.losses import build_loss
from vse_core.models import load_model

PLUGIN = Path(__file__).parent / "benchmarks" / "pcmepp.py"


def make_config(tmp_path: Path, *overrides: str) -> PipelineConfig:
    pooling = "{pooling: {name: probabilistic}}"
    settings = [f"plugins=[{PLUGIN}]", f"work_dir={tmp_path}/work", "training.epochs=2", "training.batch_size=10"]
    settings += ["model.embed_dim=16", f"model.image={pooling}", f"model.text={pooling}", "vocabulary.min_count=1"]
    settings += ["dataset.images={train: 8, dev: 4}", "loss={name: pcmepp, mask_same_image: false}"]
    return load_config(None, [*settings, "model.image.mlp=false", "model.text.word_dim=8", *overrides])


@pytest.fixture
def config(tmp_path: Path) -> PipelineConfig:
    return make_config(tmp_path)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "model.image.views=2",
            r"model\.image\.views: PCME\+\+ learns one distribution an image, got 2 views; set it to 1",
        ),
        ("model.image.pooling={name: gpo}", r"model\.image\.pooling: .* got gpo; set it to \{name: probabilistic\}"),
        ("model.text.pooling={name: mean}", r"model\.text\.pooling: .* got mean; set it to \{name: probabilistic\}"),
    ],
)
def test_a_model_without_one_distribution_a_side_is_refused(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config(tmp_path, override)


def normals(seed: int, count: int, dim: int = 4) -> Any:
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    logs = torch.randn(count, dim, generator=generator, dtype=torch.float64) - 2
    return sys.modules["pcmepp"].Normals(torch.nn.functional.normalize(means, dim=1), logs)


def naive_distance(image: Any, text: Any, i: int, j: int) -> float:
    pairs = zip(image.means_bD[i].tolist(), text.means_bD[j].tolist(), strict=True)
    logs = [*image.log_variances_bD[i].tolist(), *text.log_variances_bD[j].tolist()]
    return sum((a - b) ** 2 for a, b in pairs) + sum(math.exp(log) for log in logs)


def naive_loss(images: Any, texts: Any, ids: list[int], mask: bool) -> float:
    """Equations (1) to (3) and the divergences, with the released weights."""
    count = len(ids)
    logits = [[5 - 5 * naive_distance(images, texts, i, j) for j in range(count)] for i in range(count)]

    def cost(i: int, j: int, match: bool) -> float:
        return math.log(1 + math.exp(-logits[i][j] if match else logits[i][j]))

    total = 0.0
    for i in range(count):
        for j in range(count):
            if i != j and mask and ids[i] == ids[j]:
                continue
            total += 2 * cost(i, j, i == j) / count**2
            for own in (logits[i][i], logits[j][j]):
                total += 0.1 * cost(i, j, i == j or logits[i][j] >= own) / count**2
    for side in (images, texts):
        values = zip(side.means_bD.flatten().tolist(), side.log_variances_bD.flatten().tolist(), strict=True)
        terms = [-0.5 * (1 + log - mean**2 - math.exp(log)) for mean, log in values]
        total += 1e-4 * sum(terms) / len(terms)
    return total


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_loss_is_that_of_loops_over_the_equations(config: PipelineConfig, seed: int, mask: bool) -> None:
    images, texts, ids = normals(seed, 6), normals(seed + 100, 6), torch.tensor([0, 1, 0, 2, 2, 3])
    loss = build_loss("pcmepp", **config.loss.options() | {"mask_same_image": mask}).double()
    expected = naive_loss(images, texts, ids.tolist(), mask)
    assert loss(images, texts, ids).total.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.usefixtures("config")
def test_scale_and_shift_are_reported_as_they_were_before_the_step() -> None:
    settings = {"scale": 5.0, "shift": 4.0, "pseudo_positives": 0.1, "bottleneck": 1e-4}
    loss = build_loss("pcmepp", **settings, mask_same_image=False).double()
    parts = loss(normals(1, 6), normals(2, 6), torch.arange(6)).parts
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.add_(1.0)
    assert [parts["scale"].item(), parts["shift"].item()] == [5.0, 4.0]


@pytest.mark.usefixtures("config")
def test_the_distance_is_the_expected_one_of_samples() -> None:
    images, texts = normals(1, 2), normals(2, 3)
    generator = torch.Generator().manual_seed(0)

    def drawn(side: Any) -> torch.Tensor:
        noise = torch.randn(200_000, *side.means_bD.shape, generator=generator)
        return side.means_bD + (side.log_variances_bD / 2).exp() * noise

    samples = drawn(images), drawn(texts)
    found = -images.similarities(texts)
    for i in range(2):
        for j in range(3):
            expected = (samples[0][:, i] - samples[1][:, j]).square().sum(dim=1).mean()
            assert found[i, j].item() == pytest.approx(expected.item(), rel=0.01)
            assert found[i, j].item() == pytest.approx(naive_distance(images, texts, i, j))


def test_it_trains_and_a_saved_model_tells_the_distributions(config: PipelineConfig, tmp_path: Path) -> None:
    extract._summary.cache_clear()
    make(config)
    outputs = extract.plan(config, {}).outputs
    train, dev = (SplitData(ShardReader(outputs[split], "grid")) for split in ("train", "dev"))
    words = Vocabulary.build(train.reader.texts(), 1)
    out = tmp_path / "run"
    out.mkdir()
    trainer = quiet_trainer(config, train, dev, words, out, None)
    before = trainer.model.image_encoder.pooling.linear.weight.clone()
    trainer.run()
    assert not torch.equal(before, trainer.model.image_encoder.pooling.linear.weight), "the variances learn"
    assert set(trainer.losses.state()) == {"scale", "shift"}
    model = load_model(max(out.glob("best-*")))
    texts = [np.array(words.encode(text)) for text in ("a red square", "two blue circles")]
    found = sys.modules["pcmepp"].distributions(model, "text", [pad_tokens([text], words.pad_id) for text in texts])
    together = pad_tokens(texts, words.pad_id)
    torch.testing.assert_close(found.means_bD, model.encode_texts(*together))
    torch.testing.assert_close(found.log_variances_bD, model.text_encoder.pooling.log_variances_BD)
    assert found.means_bD.norm(dim=1).tolist() == pytest.approx([1, 1], abs=1e-5)
    assert found.uncertainties_b.tolist() == pytest.approx(found.log_variances_bD.exp().sum(1).tolist())

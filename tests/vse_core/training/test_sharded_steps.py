"""Processes that share the weights of a BERT take the step of one process, however many captions each of them has."""

from pathlib import Path

import pytest
import torch

from tests.ranks import run_ranks
from vse_core.losses import build_loss
from vse_core.models import build_model
from vse_core.models.adversarial import AdversarialModel
from vse_core.training.sharding import shard, whole
from vse_core.training.step import LocalBatch, training_step

BERT = {
    "model_type": "bert",
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
# On a CPU 33 captions are two groups of similar length, 32 are one.
PAIRS = [33, 32]
# Adversarial captions of two processes, in chunks of four.
ADVERSARIAL = {"none": None, "more": [9, 4], "nothing here": [0, 5], "nothing there": [5, 0], "nothing": [0, 0]}


def global_batch(adversarial: list[int] | None) -> list[torch.Tensor]:
    """Features, tokens, and the tokens of adversarial captions, each with its lengths."""
    generator = torch.Generator().manual_seed(0)
    pairs = sum(PAIRS)
    inputs = [torch.randn(pairs, 5, 8, generator=generator), torch.full((pairs,), 5)]
    for captions in [pairs] if adversarial is None else [pairs, sum(adversarial)]:
        lengths = torch.randint(1, 9, (captions,), generator=generator)
        inputs += [torch.randint(0, 40, (captions, 8), generator=generator), lengths]
    return inputs


def step(rank: int, world: int, adversarial: list[int] | None) -> list[object]:
    """Take a step, and return the loss, the gradients' norm, and the weights afterwards."""
    torch.manual_seed(0)
    image = {"name": "features", "mlp": False, "pooling": {"name": "mean"}}
    text = {"name": "bert", "pooling": {"name": "mean"}, "architecture": BERT}
    model = build_model(8, 40, 16, image=image, text=text)
    inputs, counts = global_batch(adversarial), [sum(PAIRS)]
    if world > 1:
        shard(model)
        sizes = [PAIRS] * 4 + [adversarial] * (len(inputs) - 4)
        inputs, counts = [x.split(size)[rank] for x, size in zip(inputs, sizes, strict=True)], PAIRS
    start = sum(counts[:rank])
    batch = LocalBatch(inputs, torch.arange(start, start + counts[rank]), counts)
    trained = model if adversarial is None else AdversarialModel(model, chunk=4)
    loss = build_loss("triplet" if adversarial is None else "vse_c")
    result = training_step(trained, loss, torch.optim.SGD(model.parameters(), lr=0.1), [batch], 1e9)
    state = {name: whole(tensor) for name, tensor in model.state_dict().items()}
    return [result.loss, result.gradient_norm, state]


def steps(rank: int, world: int, out: Path) -> None:
    torch.save([step(rank, world, adversarial) for adversarial in ADVERSARIAL.values()], out / f"{world}-{rank}.pt")


@pytest.mark.integration
def test_two_processes_take_the_steps_of_one(tmp_path: Path) -> None:
    steps(0, 1, tmp_path)
    run_ranks(steps, 2, 2, tmp_path)
    expected, *found = (torch.load(tmp_path / f"{run}.pt", weights_only=True) for run in ("1-0", "2-0", "2-1"))
    for each in found:
        for name, one, other in zip(ADVERSARIAL, each, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, msg=lambda said, name=name: f"{name}: {said}")

"""A GPU computes what a CPU does: aggregators, GRUs, steps of every system, half precision, NCCL."""

import copy
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from tests.ranks import run_ranks
from tests.vse_core.pooling.test_pooling import make_pooling, make_sets
from tests.vse_core.training.test_processes import SIZE, SYSTEMS, batch_of
from tests.vse_core.training.tiny_levels import tiny_levels
from tests.vse_core.training.tiny_unified import share_of, tiny_adversarial, tiny_unified
from tests.vse_core.training.tiny_views import TinyViews
from vse_core.evaluation.recall import evaluate_retrieval
from vse_core.losses import build_loss
from vse_core.models import build_model
from vse_core.pooling import POOLINGS
from vse_core.precision import use_tf32
from vse_core.recurrent import gru_states, word_states
from vse_core.similarity import unit_length
from vse_core.training.graphs import GraphedSteps
from vse_core.training.mixed_precision import MixedPrecision
from vse_core.training.optim import build_optimizer, set_learning_rate
from vse_core.training.step import LocalBatch, NonFiniteLossError, StepResult, training_step

pytestmark = pytest.mark.gpu

MODELS = {"unified": tiny_unified, "vse_c": tiny_adversarial, "hierarchical": tiny_levels}
# One loss of every model, and those whose way to negatives differs.
NAMES = (
    "triplet",
    "multi_view-joint",
    "adopt",
    "infonce-learned",
    "sigmoid-learned",
    "unified",
    "vse_c",
    "hierarchical",
)


@pytest.fixture(autouse=True)
def full_precision_by_default() -> None:
    use_tf32(False)


def moved(inputs: list[Any], device: str) -> list[Any]:
    return [tensor.to(device) for tensor in inputs]


class Run:
    """A system in training on a device, one batch a step."""

    def __init__(self, name: str, device: str, precision: Any = "float32", scale: float | None = None) -> None:
        self.name, self.device = name, device
        self.model = MODELS.get(name, lambda: TinyViews(views=2))().to(device)
        self.loss = build_loss(**SYSTEMS[name]).to(device)
        self.optimizer = build_optimizer(self.model, 5e-3, 0.01)
        self.precision = MixedPrecision(precision, device)
        if scale is not None:
            self.precision.scaler.load_state_dict(self.precision.scaler.state_dict() | {"scale": scale})

    def batch(self, seed: int) -> LocalBatch:
        inputs, ids = batch_of(self.name, seed)
        return LocalBatch(moved(inputs, self.device), ids.to(self.device), [SIZE])

    def take(self, batch: LocalBatch) -> StepResult:
        return training_step(self.model, self.loss, self.optimizer, [batch], 2.0, self.precision)

    def step(self, seed: int) -> StepResult:
        return self.take(self.batch(seed))

    def weights(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.model.named_parameters()}


def output_and_gradients(module: nn.Module, inputs: list[Tensor], read: Any) -> list[Tensor]:
    features = inputs[0].detach().requires_grad_(inputs[0].is_floating_point())
    output = read(features, *inputs[1:])
    probe = torch.randn(output.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64).to(output)
    sought = [*([features] if features.requires_grad else []), *module.parameters()]
    return [output.detach(), *torch.autograd.grad((output * probe).sum(), sought, allow_unused=True)]


def assert_near(found: list[Tensor | None], expected: list[Tensor | None], rtol: float = 1e-4) -> None:
    for ours, exact in zip(found, expected, strict=True):
        assert (ours is None) == (exact is None)
        if ours is not None and exact is not None:
            bound = rtol * max(float(exact.abs().max()), 1.0)
            torch.testing.assert_close(ours.double().cpu(), exact.double(), atol=bound, rtol=0)


@pytest.mark.parametrize("name", POOLINGS)
def test_aggregators(name: str):
    module = make_pooling(name)
    inputs = list(make_sets([5, 2, 9, 9, 1]))
    exact = copy.deepcopy(module).double()
    expected = output_and_gradients(exact, [inputs[0].double(), inputs[1]], exact)
    module.cuda()
    assert_near(output_and_gradients(module, moved(inputs, "cuda"), module), expected)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_recurrent_states(bidirectional: bool):
    torch.manual_seed(0)
    gru = nn.GRU(6, 8, batch_first=True, bidirectional=bidirectional)
    embedding, lengths = nn.Embedding(13, 6), torch.tensor([3, 7, 1, 7])
    features, tokens = torch.randn(4, 7, 6), torch.randint(0, 13, (4, 7))
    is_real = torch.arange(7) < lengths.unsqueeze(1)

    def found(gru: nn.GRU, embedding: nn.Embedding, features: Tensor, tokens: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return real states of features and of words, and their gradients."""
        real = is_real.to(lengths.device)
        return output_and_gradients(
            gru, [features, lengths], lambda *read: gru_states(gru, *read)[real]
        ) + output_and_gradients(embedding, [tokens, lengths], lambda *read: word_states(gru, embedding, *read)[real])

    expected = found(copy.deepcopy(gru).double(), copy.deepcopy(embedding).double(), features.double(), tokens, lengths)
    assert_near(found(gru.cuda(), embedding.cuda(), *moved([features, tokens, lengths], "cuda")), expected)


@pytest.mark.parametrize("name", NAMES)
def test_steps_of_every_system(name: str):
    on_cpu, on_gpu = Run(name, "cpu"), Run(name, "cuda")
    for seed in range(3):
        expected, found = on_cpu.step(seed), on_gpu.step(seed)
        assert found.check()
        assert found.loss.item() == pytest.approx(expected.loss.item(), rel=1e-3, abs=1e-4)
        assert found.gradient_norm.item() == pytest.approx(expected.gradient_norm.item(), rel=1e-2, abs=1e-3)


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
@pytest.mark.parametrize("name", ["multi_view-joint", "infonce-learned", "unified", "vse_c"])
def test_losses_stay_near_those_of_float32(name: str, precision: str):
    exact, near = Run(name, "cuda"), Run(name, "cuda", precision, 128.0 if precision == "fp16" else None)
    use_tf32(precision == "tf32")
    try:
        found = [near.step(seed) for seed in range(5)]
    finally:
        use_tf32(False)
    for seed, other in enumerate(found):
        ours = exact.step(seed)
        assert other.check()
        assert other.loss.dtype == torch.float32
        # The hardest negative of a batch of eleven may be another one.
        assert other.loss.item() == pytest.approx(ours.loss.item(), rel=0.05)


def test_similarities_are_not_computed_in_tf32():
    vectors = unit_length(torch.randn(64, 256, device="cuda", generator=torch.Generator("cuda").manual_seed(0)))
    result = evaluate_retrieval(vectors, vectors, 1)
    use_tf32(True)
    try:
        assert evaluate_retrieval(vectors, vectors, 1) == result
        loose = vectors @ vectors.T
    finally:
        use_tf32(False)
    assert not torch.equal(loose, vectors @ vectors.T)  # TF32 was on


@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_a_loss_that_is_no_number_is_an_error_and_leaves_no_trace(precision: str):
    run = Run("infonce", "cuda", precision)
    before, batch = run.weights(), run.batch(0)
    batch.inputs[0][0] = float("nan")
    with pytest.raises(NonFiniteLossError, match="the loss is nan"):
        run.take(batch).check()
    assert all(torch.equal(tensor, before[name]) for name, tensor in run.weights().items())


def nccl_steps(rank: int, world: int, out: Path) -> None:
    """A step of several systems as one of several processes, each with a GPU of its own."""
    torch.cuda.set_device(rank)
    use_tf32(False)
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    found = {}
    for name in NAMES:
        model = MODELS.get(name, lambda: TinyViews(views=2))().cuda()
        trained = nn.parallel.DistributedDataParallel(model, device_ids=[rank], broadcast_buffers=False)
        inputs, ids = batch_of(name, 1)
        own, mine, counts = share_of(inputs, rank, world)
        loss = build_loss(**SYSTEMS[name]).cuda()
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        result = training_step(
            trained, loss, optimizer, [LocalBatch(moved(own, "cuda"), ids[mine].cuda(), counts)], 1e9
        )
        found[name] = [result.loss.cpu(), result.gradient_norm.cpu()]
    if rank == world - 1:
        torch.save(found, out)
    dist.destroy_process_group()
    dist.init_process_group("gloo", rank=rank, world_size=world)  # the one that `run_ranks` ends


def test_nccl_has_the_gradients_of_one_process(tmp_path: Path):
    world = torch.cuda.device_count()  # 1 is DistributedDataParallel on NCCL with nothing to exchange
    run_ranks(nccl_steps, world, world, tmp_path / "found.pt")
    found = torch.load(tmp_path / "found.pt", weights_only=True)
    for name in NAMES:
        run = Run(name, "cuda")
        expected = training_step(run.model, run.loss, torch.optim.SGD(run.model.parameters()), [run.batch(1)], 1e9)
        assert_near(found[name], [expected.loss.cpu(), expected.gradient_norm.cpu()])


@pytest.mark.parametrize("folds", [1, 5])
def test_retrieval(folds: int):
    generator = torch.Generator().manual_seed(0)
    images = unit_length(torch.randn(50, 3, 16, generator=generator))
    texts = unit_length(torch.randn(250, 16, generator=generator))
    assert evaluate_retrieval(images.cuda(), texts.cuda(), 5, folds) == evaluate_retrieval(images, texts, 5, folds)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_the_host_does_not_wait_in_a_step(name: str, precision: str):
    run = Run(name, "cuda", precision)
    batch = run.batch(0)
    run.take(batch)  # the first one chooses and loads kernels
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = run.take(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert result.loss.isfinite()


BERT = {
    "model_type": "bert",
    "vocab_size": 40,
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
GPO = {"pooling": {"name": "gpo"}}
# Image encoder, text encoder, loss: every part that a published system has.
PARTS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "vse_infinity": (GPO, GPO, {"name": "triplet"}),
    "vse_infinity, bert": (GPO, GPO | {"name": "bert", "architecture": BERT}, {"name": "triplet"}),
    "vsepp": ({"pooling": {"name": "mean"}}, {"pooling": {"name": "last"}, "directions": 1}, {"name": "triplet"}),
    "mv_vse": (GPO | {"views": 3}, GPO, {"name": "multi_view"}),
    "vse_2ad": ({"pooling": {"name": "adpool"}}, {"pooling": {"name": "adpool"}}, {"name": "adopt"}),
    "small_data": (GPO, GPO | {"dropout": 0.2}, {"name": "sigmoid", "learned": True}),
    "backbone": (GPO | {"name": "backbone", "architecture": "resnet50", "image_size": 64}, GPO, {"name": "infonce"}),
}


def parts_of(name: str) -> tuple[nn.Module, Any, torch.optim.Optimizer]:
    image, text, options = PARTS[name]
    torch.manual_seed(0)
    width = None if name == "backbone" else 24
    model = build_model(width, 40, 16, image=copy.deepcopy(image), text=copy.deepcopy(text)).cuda().train()
    loss = build_loss(**options).cuda()
    return model, loss, build_optimizer(model, 1e-3, 0.01, of_loss=list(loss.parameters()), capturable=True)


def random_parts(name: str, seed: int, size: int = 12) -> LocalBatch:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(size, 9, 24, generator=generator), torch.randint(1, 10, (size,), generator=generator)
    if name == "backbone":
        kept = torch.rand(size, 4, generator=generator) < 0.7
        kept[:, 0] = True
        images = torch.randint(0, 256, (size, 3, 64, 64), generator=generator, dtype=torch.uint8), kept
    tokens = torch.randint(0, 40, (size, 8), generator=generator), torch.randint(2, 9, (size,), generator=generator)
    return LocalBatch([each.cuda() for each in (*images, *tokens)], torch.arange(size).cuda(), [size])


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_replayed_steps_are_the_eager_ones(name: str, precision: Any):
    losses = []
    for is_graphed in (False, True):
        model, loss, optimizer = parts_of(name)
        take = GraphedSteps(model, optimizer, 2.0, MixedPrecision(precision, "cuda"))
        if not is_graphed:
            take._seen = SeenRarely()
        found = []
        for step in range(8):
            torch.manual_seed(step)
            set_learning_rate(optimizer, 1e-3 / (step + 1))
            result = take(loss, [random_parts(name, step)], diagnosed=step % 2 == 0)
            found.append([result.loss.item(), result.gradient_norm.item()])
        losses.append(found)
        assert (take.replayed > 0) == is_graphed
    # cuDNN adds up the gradient of a convolution in any order.
    near = 1e-2 if name == "backbone" else 0.0
    assert losses[1] == [pytest.approx(each, rel=near, abs=0.0) for each in losses[0]]


class SeenRarely(Counter[Any]):
    """Steps of which each is the first of its kind."""

    def __getitem__(self, _key: Any) -> int:
        return 0


def test_a_replay_draws_the_dropout_that_its_seed_says():
    model, loss, optimizer = parts_of("small_data")
    take = GraphedSteps(model, optimizer, 2.0, MixedPrecision())
    set_learning_rate(optimizer, 0.0)
    batch, found = random_parts("small_data", 0), []
    for seed in (0, 1, 2, 2, 3, 0):
        torch.manual_seed(seed)
        found.append(take(loss, [batch], diagnosed=False).loss.item())
    assert found[2] == found[3] != found[4]
    assert found[5] == pytest.approx(found[0], rel=1e-6)

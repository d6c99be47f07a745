"""Compiled networks have the losses and gradients of the others, in chunks and under DistributedDataParallel too."""

import os
import shutil
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.vse_core.training.test_grad_cache import BERT
from tests.vse_core.training.tiny_views import random_batch
from vse_core.losses import build_loss
from vse_core.models import build_model
from vse_core.training.compiling import CompilerError, compile_networks
from vse_core.training.grad_cache import ChunkedModel
from vse_core.training.step import LocalBatch, training_step

SIZE = 6
CPU = torch.device("cpu")


def make_model(architecture: dict | None = None) -> nn.Module:
    torch.manual_seed(0)
    pooling = {"name": "mean"}
    text = {"name": "bert", "architecture": architecture} if architecture else {"word_dim": 4}
    return build_model(5, 13, 8, {"pooling": pooling, "mlp": False}, {"pooling": pooling, **text})


def one_step(model: nn.Module, seed: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    inputs, ids = random_batch(SIZE, seed)
    inputs = [inputs[0], inputs[1], inputs[2][:, : 5 + seed], inputs[3].clamp(max=5 + seed)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    result = training_step(model, build_loss("infonce"), optimizer, [LocalBatch(inputs, ids, [SIZE])], 1e9)
    return result.loss, [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.integration
@pytest.mark.skipif(shutil.which(os.environ.get("CXX", "g++")) is None, reason="no C++ compiler on this machine")
def test_compiled_bert_is_bert(tmp_path: Path):
    architecture = BERT | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    plain, compiled = make_model(architecture), make_model(architecture)
    compile_networks(compiled, CPU)
    assert compiled.state_dict().keys() == plain.state_dict().keys()
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        # Captions of another length in the second step.
        for wrapped in (nn.parallel.DistributedDataParallel(compiled), ChunkedModel(compiled, 4)):
            for seed in range(2):
                torch.testing.assert_close(one_step(wrapped, seed), one_step(plain, seed), atol=1e-5, rtol=1e-5)
    finally:
        dist.destroy_process_group()
    assert torch._dynamo.utils.counters["frames"]["ok"] > 0


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompilerError, match=r"no 'no-such-compiler' on this machine.*environment variable CXX"):
        compile_networks(make_model(BERT), CPU)


def test_there_must_be_something_to_compile():
    with pytest.raises(ValueError, match="neither BERT nor a backbone"):
        compile_networks(make_model(), CPU)

"""The released systems in miniature: modules with the official names, computing one sample at a time from the
definitions, and files in the official formats.

N elements, F feature width, D embedding, L tokens.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import resnet50
from transformers import BertConfig, BertModel, ViTConfig, ViTModel

FEATURES, EMBED, WORDS = 10, 8, 17
_NETWORK = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 1, "intermediate_size": 96}
# Of a PyTorch network before transformers 5: what its ViT called the parts of a layer.
_OLD_VIT_NAMES = {
    "attention.q_proj": "attention.attention.query",
    "attention.k_proj": "attention.attention.key",
    "attention.v_proj": "attention.attention.value",
    "attention.o_proj": "attention.output.dense",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
    "layernorm_before": "layernorm_before",
    "layernorm_after": "layernorm_after",
}


def normed(vector: Tensor) -> Tensor:
    return vector / (vector.norm() + 1e-8)


class Gpo(nn.Module):
    """`gpool`, with sizes that are not the default ones."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(6, 5, bidirectional=True)
        self.linear = nn.Linear(5, 1, bias=False)

    def forward(self, rows_ND: Tensor) -> Tensor:
        codes = [
            [(math.cos if j % 2 else math.sin)(k * 10000 ** (-(j - j % 2) / 6)) for j in range(6)]
            for k in range(len(rows_ND))
        ]
        hidden = self.gru(torch.tensor(codes))[0]
        weights = torch.softmax(self.linear((hidden[:, :5] + hidden[:, 5:]) / 2)[:, 0] / 0.1, dim=0)
        return (weights.unsqueeze(1) * rows_ND.sort(dim=0, descending=True).values).sum(dim=0)


class AdPool(nn.Module):
    """`pool` of VSE+2AD, as released."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(EMBED, EMBED)
        self.balance = nn.Linear(EMBED, 1)

    def forward(self, rows_ND: Tensor) -> Tensor:
        ranked = rows_ND.sort(dim=0, descending=True).values
        token = (torch.relu(self.linear(ranked)).softmax(dim=0) * ranked).sum(dim=0)
        embedding = (rows_ND.softmax(dim=0) * rows_ND).sum(dim=0)
        share = torch.softmax(torch.cat([self.balance(token), self.balance(embedding)]), dim=0)
        return share[0] * token + share[1] * embedding


class Mlp(nn.Module):
    """`mlp`, whose second batch norm nothing calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(FEATURES, EMBED // 2), nn.Linear(EMBED // 2, EMBED)])
        self.bns = nn.ModuleList([nn.BatchNorm1d(EMBED // 2), nn.BatchNorm1d(EMBED)])
        self.bns[0].running_mean.normal_()
        self.bns[0].running_var.uniform_(0.5, 2.0)

    def forward(self, rows_NF: Tensor) -> Tensor:
        return self.layers[1](torch.relu(self.bns[0](self.layers[0](rows_NF))))


class RegionEncoder(nn.Module):
    """Image side of VSE-infinity over regions (`gpool`), and of VSE+2AD (`pool`)."""

    def __init__(self, pool_name: str = "gpool") -> None:
        super().__init__()
        self.fc = nn.Linear(FEATURES, EMBED)
        self.mlp = Mlp()
        self.pool_name = pool_name
        setattr(self, pool_name, Gpo() if pool_name == "gpool" else AdPool())

    def forward(self, rows_NF: Tensor) -> Tensor:
        return normed(getattr(self, self.pool_name)(self.fc(rows_NF) + self.mlp(rows_NF))).unsqueeze(0)


class ViewsEncoder(nn.Module):
    """Image side of the released MV-VSE code."""

    def __init__(self, views: int) -> None:
        super().__init__()
        self.fc_list = nn.ModuleList(nn.Linear(FEATURES, EMBED) for _ in range(views))

    def forward(self, rows_NF: Tensor) -> Tensor:
        return torch.stack([normed(fc(rows_NF).amax(dim=0)) for fc in self.fc_list])


class Projection(nn.Module):
    """Layers after a network: `image_encoder` of VSE-infinity, `img_proj` of VSE+2AD with its unused MLP."""

    def __init__(self, width: int, pool_name: str) -> None:
        super().__init__()
        self.fc = nn.Linear(width, EMBED)
        self.pool_name = pool_name
        if pool_name == "gpool":
            self.gpool = Gpo()
        else:
            self.pool, self.mlp = AdPool(), Mlp()

    def forward(self, rows_NF: Tensor) -> Tensor:
        return normed(getattr(self, self.pool_name)(self.fc(rows_NF))).unsqueeze(0)


class CaffeBackbone(nn.Module):
    """`backbone`: a ResNet in Caffe's topology, and the two parts of it that are run."""

    def __init__(self) -> None:
        super().__init__()
        self.resnet = resnet = resnet50()
        resnet.maxpool = nn.MaxPool2d(3, 2, padding=0, ceil_mode=True)
        for layer in (resnet.layer2, resnet.layer3, resnet.layer4):
            layer[0].conv1.stride, layer[0].conv2.stride = (2, 2), (1, 1)
        stem = (resnet.conv1, resnet.bn1, resnet.relu, resnet.maxpool)
        self.base = nn.Sequential(*stem, resnet.layer1, resnet.layer2, resnet.layer3)
        self.top = nn.Sequential(resnet.layer4)

    def forward(self, pixels_CHW: Tensor) -> Tensor:
        return self.top(self.base(pixels_CHW.unsqueeze(0)))[0].flatten(1).T


class GridEncoder(nn.Module):
    """Image side of VSE-infinity over a grid, for pixels (3, S, S) in red, green, blue from 0 to 255."""

    projection_name, pool_name = "image_encoder", "gpool"

    def __init__(self) -> None:
        super().__init__()
        self.backbone = CaffeBackbone()
        self.add_module(self.projection_name, Projection(2048, self.pool_name))

    def forward(self, pixels_CHW: Tensor) -> Tensor:
        blue_first = pixels_CHW[[2, 1, 0]] - torch.tensor([102.9801, 115.9465, 122.7717]).reshape(3, 1, 1)
        return self.get_submodule(self.projection_name)(self.backbone(blue_first))


class TwoAdGridEncoder(GridEncoder):
    """Image side of VSE+2AD over a grid."""

    projection_name, pool_name = "img_proj", "pool"


class PatchEncoder(nn.Module):
    """Image side of VSE+2AD over patches of 16 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.vit_model = ViTModel(ViTConfig(**_NETWORK, image_size=48))
        self.img_proj = Projection(64, "pool")

    def forward(self, pixels_CHW: Tensor) -> Tensor:
        normalised = (pixels_CHW / 255 - 0.5) / 0.5
        return self.img_proj(self.vit_model(normalised.unsqueeze(0)).last_hidden_state[0])


def old_vit_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state dict as a transformers of its time wrote it."""
    renamed = {}
    for name, tensor in state.items():
        new = name.replace("vit_model.layers.", "vit_model.encoder.layer.")
        if new != name:
            inner, kind = new.split(".", 5)[-1].rsplit(".", 1)
            new = new.removesuffix(f"{inner}.{kind}") + f"{_OLD_VIT_NAMES[inner]}.{kind}"
        renamed[new] = tensor
    return renamed


class GruEncoder(nn.Module):
    """Text side with a BiGRU and an aggregator, or a GRU of one direction and its last state."""

    def __init__(self, pool_name: str | None = "gpool") -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 7)
        self.rnn = nn.GRU(7, EMBED, batch_first=True, bidirectional=pool_name is not None)
        self.pool_name = pool_name
        if pool_name is not None:
            setattr(self, pool_name, Gpo() if pool_name == "gpool" else AdPool())

    def forward(self, tokens_L: Tensor) -> Tensor:
        hidden = self.rnn(self.embed(tokens_L).unsqueeze(0))[0][0]
        if self.pool_name is None:
            return normed(hidden[-1])
        return normed(getattr(self, self.pool_name)((hidden[:, :EMBED] + hidden[:, EMBED:]) / 2))


class BertTextEncoder(nn.Module):
    """Text side with BERT: VSE-infinity names the projection `linear`, VSE+2AD `fc`."""

    def __init__(self, projection: str = "linear", pool_name: str = "gpool") -> None:
        super().__init__()
        self.bert = BertModel(BertConfig(**_NETWORK, vocab_size=WORDS, max_position_embeddings=12))
        self.projection, self.pool_name = projection, pool_name
        setattr(self, projection, nn.Linear(64, EMBED))
        setattr(self, pool_name, Gpo() if pool_name == "gpool" else AdPool())

    def forward(self, tokens_L: Tensor) -> Tensor:
        states = self.bert(tokens_L.unsqueeze(0)).last_hidden_state[0]
        return normed(getattr(self, self.pool_name)(getattr(self, self.projection)(states)))


class TwoAd(nn.Module):
    """VSE+2AD keeps both sides in one module."""

    def __init__(self, image: nn.Module, text: nn.Module) -> None:
        super().__init__()
        self.img_enc, self.txt_enc = image, text


def save_pair(path: Path, image: nn.Module, text: nn.Module, **options: Any) -> None:
    """As VSE-infinity and MV-VSE save, options and all."""
    model = [image.state_dict(), text.state_dict()]
    namespace = argparse.Namespace(data_name="f30k_precomp", learning_rate=5e-4, precomp_enc_type="basic", **options)
    torch.save({"epoch": 25, "model": model, "best_rsum": 498.1, "opt": namespace, "Eiters": 28300}, path)


def save_flat(path: Path, image: nn.Module, text: nn.Module, parallel: bool = False, **options: Any) -> None:
    """As VSE+2AD saves."""
    model = TwoAd(image, text)
    state = (nn.DataParallel(model) if parallel else model).state_dict()
    torch.save({"model": state, "rsum": 503.7, "args": argparse.Namespace(batch_size=128, **options)}, path)

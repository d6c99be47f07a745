"""HGR-infinity from the files of HGR's release to ranks: readers, batches, training steps, evaluation in tiles."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from preprocessing.captions.role_graphs import RoleGraphTable, read_role_graphs
from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.datasets import Record, build_dataset
from preprocessing.features import build_extractor
from preprocessing.shards.batch import FeatureBuffers, pad_features
from vse_core.evaluation.levels import rank_levels
from vse_core.evaluation.ranks import TrueItems
from vse_core.losses import build_loss
from vse_core.models.hierarchical import HierarchicalModel, build_hierarchical_model
from vse_core.role_graphs import RoleGraphs
from vse_core.training.optim import build_optimizer
from vse_core.training.step import Share, training_step

h5py = pytest.importorskip("h5py", reason="pip install h5py")
from tests.preprocessing.datasets.hgr_files import NETWORK, write_hgr  # noqa: E402 (needs h5py)

WHO, WHAT = ["dog", "cat", "man", "child", "bird"], ["runs", "jumps", "sings", "sleeps"]
VIDEOS, STEPS = len(WHO) * len(WHAT), 80


def made_files(root: Path) -> None:
    """A video shows who does what, in some of its frames each."""
    rng = np.random.default_rng(0)
    captions, frames, graphs = {}, {}, {}
    for number, (who, what) in enumerate((who, what) for who in WHO for what in WHAT):
        caption = f"a {who} {what}"
        captions[f"video{number}"] = [caption]
        shown = [WHO.index(who), len(WHO) + WHAT.index(what)]
        seen = np.eye(len(WHO) + len(WHAT))[[*shown, *rng.choice(shown, rng.integers(1, 30))]]
        frames[f"video{number}"] = seen + 0.1 * rng.standard_normal(seen.shape)
        nodes = {
            "ROOT": {"role": "ROOT", "spans": [0, 1, 2], "words": caption.split()},
            "1": {"role": "V", "spans": [2], "words": [what]},
            "2": {"role": "ARG0", "spans": [0, 1], "words": ["a", who]},
        }
        graphs[caption] = [nodes, [["1", "2", "ARG0"]]]
    write_hgr(root, {"trn": captions}, frames)
    (root / "annotation" / "RET" / "sent2rolegraph.augment.json").write_text(json.dumps(graphs))


def batch_of(records: list[Record], table: RoleGraphTable, rows: np.ndarray) -> list[Any]:
    """What the model is called with; every record has one caption."""
    extractor = build_extractor("precomputed", largest_set=20)
    features_BNF, frames_B = pad_features(
        [extractor.load(records[row].image_uri) for row in rows], None, FeatureBuffers(1)
    )
    tokens_BL, lengths_B = (torch.from_numpy(array) for array in table.tokens(rows))
    graphs = RoleGraphs(**{name: torch.from_numpy(array) for name, array in table.graphs(rows).items()})
    return [features_BNF.clone(), frames_B, tokens_BL, lengths_B, graphs]


def recall_at_1(model: HierarchicalModel, inputs: list[Any]) -> list[float]:
    with torch.inference_mode():
        videos, texts = model.eval()(*inputs)
    everyone = torch.arange(VIDEOS)
    own = TrueItems.of_pairs(everyone, everyone, VIDEOS)
    return [100 * float((ranks.ranks_Q == 0).double().mean()) for ranks in rank_levels(videos, texts, own, own)]


def test_from_the_released_files_to_ranks(tmp_path: Path) -> None:
    made_files(tmp_path)
    records = list(build_dataset("hgr", root=tmp_path, network=NETWORK).records("trn"))
    captions = [record.captions[0].text for record in records]
    graphs = read_role_graphs(tmp_path / "annotation" / "RET" / "sent2rolegraph.augment.json")
    vocabulary = Vocabulary.build(captions, min_count=1)
    table = RoleGraphTable.build(captions, graphs, vocabulary)
    torch.manual_seed(0)
    model = build_hierarchical_model(len(WHO) + len(WHAT), len(vocabulary), 32, {}, {"word_dim": 16})
    whole = batch_of(records, table, np.arange(VIDEOS))
    before = recall_at_1(model, whole)
    optimizer, loss = build_optimizer(model.train(), 0.005, 0.0), build_loss("hierarchical", margin=0.2)
    rng = np.random.default_rng(1)
    for _ in range(STEPS):
        rows = rng.permutation(VIDEOS)[:16]
        share = Share(batch_of(records, table, rows), torch.from_numpy(rows), [len(rows)])
        assert training_step(model, loss, optimizer, [share], 1e3).check()
    assert max(before) < 40
    assert min(recall_at_1(model, whole)) > 70

"""Rows of every kind of docs/experiments.md, run to the end by their commands on made-up data in published formats."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from pipelines.runtime.stage import manifest_in
from tests.integration.test_video import write_role_graphs
from tests.pipelines.training.test_text_encoders import write_bert
from tests.test_experiments import ROOT, captions_of, every_command, exit_code, write_data
from vse_core.evaluation.protocols import RETRIEVAL_PROTOCOLS, VIDEO_PROTOCOLS

ITEMS = 20  # images or videos of a split
# Networks that stand for published ones, which are large.
RESNET = "{model_type: resnet, embedding_size: 8, hidden_sizes: [8, 16], depths: [1, 1], layer_type: basic}"
VIT = "{model_type: vit, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2, image_size: 64}"
# Settings of the size of things, by patterns of the commands that they are for: of all commands, and of trainings.
COMMANDS = {
    "": ["features.gpus_per_actor=0", "training.gpus_per_worker=0", f"training.batch_size={ITEMS}"],
    "coco_components.yaml|/flickr30k.yaml": ["features.weights=tiny_resnet", "features.random_seed=0"],
    "_hgr.yaml": ["features.largest_set=20"],
}
TRAININGS = {
    "": ["model.embed_dim=16", "vocabulary.min_count=1", "training.epochs=1"],
    "bert": ["model.text.weights=${VSE_WEIGHTS}/bert"],
    "^(?!.*bert)": ["model.text.word_dim=8"],
    "_images.yaml": ["model.image.weights=null", "model.image.image_size=64"],
    "(butd|wsl)_grid": [f"model.image.architecture={RESNET}"],
    "_patch": [f"model.image.architecture={VIT}", "model.image.pixels=imagenet"],
    "coco_components.yaml": ["pools={min_nouns: 1, min_adjectives: 1, min_relations: 1}"],
    "_hgr.yaml": ["model.text.graph_dropout=0"],
    "name=flickr30k-grid-mv_vse": ["training.epochs=4"],  # captions that choose different views
}
BENCHMARKS = {"efficiency": ["--quick"], "gpo_study": ["--steps=2", "--plot=plot.png"]}
# Kinds -> a pattern of the commands of the page, which run in its order.
KINDS = {
    "regions and a figure of their model": r"name=coco-vse_infty$|(testall|gpo\S+) .*coco-vse_infty/1$",
    "rows and their figure": r"coco_regions.yaml --search .*aggregators",
    "a grid of values and its figure": "kmax_grid",
    "an ensemble of regions and a network, and ratings of people": r"name=coco-vse_infty(_butd_grid)?_bert$"
    r"|coco-vse_infty_bert/1 .*/1|cxc .*butd",
    "an ensemble of two starts": r"name=flickr30k-vse_infty_wsl_grid_bert|flickr30k-vse_infty_wsl_grid_bert/1 .*/1",
    "videos": r"msr_vtt.yaml$|msr_vtt/1$",
    "videos with role graphs": r"vatex_hgr.yaml($| .*BEST)",
    "views": r"flickr30k-(mv_vse_bert|vse_infty|grid-mv_vse)(/1)?( --encoder.*)?$|views_lambda",
    "adaptive pooling": r"name=(coco-vse_2ad(_paper_bert|_butd_grid|_patch|-triplet)?|flickr30k-vse_2ad)$"
    r"|testall .*_2ad_paper_bert/1$|coco-vse_2ad/1 .*coco-vse_2ad_patch/1|top-5|convergence|negatives ",
    "components": r"coco-(univse(-objects)?|vse_c)(/1)?$",
}


def write_rest(root: Path) -> None:
    """What planning does without: photographs and their names, word vectors, role graphs, weights, small searches."""
    rng = np.random.default_rng(0)
    for name, images in (("coco", "coco"), ("flickr30k", "flickr30k/flickr30k-images")):
        entries = json.loads((root / name / f"dataset_{name}.json").read_text())["images"]
        for entry in entries:
            colours = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
            Image.fromarray(colours).resize((64, 64)).save(root / images / entry["filename"])
    (root / "f30k" / "id_mapping.json").write_text(json.dumps({entry["imgid"]: entry["filename"] for entry in entries}))
    shutil.copytree(root / "flickr30k" / "flickr30k-images", root / "f30k" / "flickr30k-images", dirs_exist_ok=True)
    words = sorted({word for image in range(ITEMS) for text in captions_of(image) for word in text.split()})
    for file in ("glove.42B.300d.txt", "glove.840B.300d.txt"):
        lines = (f"{word} {' '.join(f'{value:.3f}' for value in rng.standard_normal(8))}\n" for word in words)
        (root / file).write_text("".join(lines))
    for name in ("MSRVTT", "VATEX"):
        captions = json.loads((root / name / "annotation" / "RET" / "ref_captions.json").read_text())
        write_role_graphs(root / name, captions.values())
    write_bert(root / "bert")
    for name in ("vse_infty_aggregators", "kmax_grid", "mv_vse_views_lambda"):
        search = yaml.safe_load((ROOT / "pipelines" / "config" / "searches" / f"{name}.yaml").read_text())
        if "rows" in search:
            search["rows"] = dict(list(search["rows"].items())[-2:])
        for number, domain in enumerate(search.get("space", {}).values(), start=1):
            domain["values"] = domain["values"][-number:]
        (root / f"{name}.yaml").write_text(yaml.safe_dump(search, sort_keys=False))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, mlflow_template: Path) -> Iterator[Path]:
    """Data, weights and work directory of all rows, which share trainings."""
    root = tmp_path_factory.mktemp("papers")
    write_data(root, ITEMS)
    write_rest(root)
    (root / "work").mkdir()
    shutil.copyfile(mlflow_template, root / "work" / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"VSE_DATA": root, "VSE_WEIGHTS": root, "VSE_WORK_DIR": root / "work"}.items():
            patch.setenv(name, str(value))
        patch.chdir(ROOT)
        for protocols in (RETRIEVAL_PROTOCOLS, VIDEO_PROTOCOLS):
            for name, protocol in protocols.items():
                patch.setitem(protocols, name, dataclasses.replace(protocol, sizes=(ITEMS,)))
        yield root


def small(command: str, home: Path) -> list[str]:
    """The script and the words of a command, with settings of the size, and what it can only be told by a user."""
    trained = sorted(home.glob("work/train/*/best-*"), key=os.path.getmtime)
    told = {"BEST": str(trained[-1])} if trained else {}
    told["hf:sentence-transformers/bert-base-nli-stsb-mean-tokens"] = f"hf:{home}/bert"
    _, *words = shlex.split(os.path.expandvars(command))
    words = [f"{home}/{Path(word).name}" if "/searches/" in word else told.get(word, word) for word in words]
    settings = matching(COMMANDS, command.partition(" --model")[0])
    if words[0].endswith("full.py") or "--search" in words:
        settings += matching(TRAININGS, command)
    return [*words, *(f"--set={os.path.expandvars(setting)}" for setting in settings)]


def matching(settings: Mapping[str, list[str]], command: str) -> list[str]:
    return list(itertools.chain.from_iterable(found for key, found in settings.items() if re.search(key, command)))


def check_output(words: list[str], out: str) -> None:
    """What a command says that it has written is there: the files of figures, the metrics of every protocol."""
    paths = [Path(line) for line in out.splitlines() if line.startswith(os.environ["VSE_WORK_DIR"])]
    if words[0].endswith(("figures.py", "evaluate.py")):
        assert paths
        assert all(path.exists() for path in paths)
    if words[0].endswith("evaluate.py"):
        asked = {word for before, word in itertools.pairwise(words) if before == "--protocol"}
        assert asked <= {name.partition("/")[0] for name in manifest_in(paths[-1])["metrics"]}


def test_every_script_figure_and_protocol_of_the_page_is_run() -> None:
    run = [command for command in every_command() if any(re.search(kind, command) for kind in KINDS.values())]
    part = re.compile(r"pipelines/\w+\.py(?: [a-z]\S+)?|--protocol \S+")
    assert set(part.findall(" ".join(run))) == set(part.findall(" ".join(every_command())))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_of_each_kind_ends(
    kind: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in filter(re.compile(KINDS[kind]).search, every_command()):
        script, *words = small(command, home)
        code = exit_code(script, words, monkeypatch)
        out, err = capsys.readouterr()
        assert code == 0, f"{command}\n{out}\n{err}"
        check_output([script, *words], out)


@pytest.mark.nightly
@pytest.mark.parametrize("command", [command for command in every_command() if " tests/" in command])
def test_each_benchmark_of_the_page_ends(command: str, tmp_path: Path) -> None:
    script = ROOT / command.split()[1]
    words = [*BENCHMARKS[script.stem], "--output=result.json"]
    subprocess.run([sys.executable, script, *words], cwd=tmp_path, check=True)
    assert json.loads((tmp_path / "result.json").read_text())

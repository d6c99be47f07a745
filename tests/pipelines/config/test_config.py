"""Loading: layers, variables, durations, and one clear message for everything that can be wrong."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import yaml

from pipelines.config import DEFAULT_CONFIG, ConfigError, PipelineConfig, layers, load_config
from pipelines.config.yaml_text import load_yaml
from pipelines.schema.fields import Duration
from preprocessing.storage.redaction import SecretAddress
from tests.hostile_text import YAML
from vse_core.losses import LOSSES, build_loss
from vse_core.pooling import POOLINGS, build_pooling

CONFIGS = DEFAULT_CONFIG.parent


def message(*overrides: str, path: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value)


def written(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


SCENES = "dataset: {format: scenes, images: {train: 8, dev: 4}}\nfeatures: {extractor: grid, weights: tiny_resnet}\n"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("[!_]*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_configuration_loads(path: Path) -> None:
    config = load_config(path)
    assert config.work_dir.is_absolute()
    assert PipelineConfig.model_validate(config.model_dump(mode="json")) == config


def test_later_layers_win(tmp_path: Path) -> None:
    path = written(tmp_path, SCENES + "training: {epochs: 7, batch_size: 4}\n")
    config = load_config(path, ["training.epochs=9", "training.epochs=10"])
    assert (config.training.epochs, config.training.batch_size, config.training.learning_rate) == (10, 4, 5e-4)


def test_another_variant_replaces_the_options_of_the_old_one(tmp_path: Path) -> None:
    path = written(tmp_path, SCENES + "training: {decay: {name: cosine}}\n")
    assert load_config(path).training.decay.model_dump() == {"name": "cosine", "floor": 0.0}
    assert load_config(path, ["model.image.pooling.name=mean"]).model.image.pooling.model_dump() == {"name": "mean"}


def test_options_of_the_same_variant_are_merged(tmp_path: Path) -> None:
    path = written(tmp_path, SCENES + "training: {decay: {factor: 0.5}}\n")
    decay = load_config(path).training.decay
    assert decay.model_dump(mode="json") == {"name": "step", "at": ["15 epochs"], "factor": 0.5}


def test_variables_are_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, SCENES + "name: ${VSE_TEST_NAME:-no}-x\ntraining: {epochs: '${VSE_TEST_EPOCHS:-3}'}\n")
    monkeypatch.delenv("VSE_TEST_NAME", raising=False)
    monkeypatch.setenv("VSE_TEST_EPOCHS", "5")
    config = load_config(path)
    assert (config.name, config.training.epochs) == ("no-x", 5)


def test_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    relative = ["work_dir=there", "tracking.uri=sqlite:///runs.db", "features={extractor: grid, weights: ./w}"]
    config = load_config(None, relative)
    assert config.work_dir == tmp_path / "there"
    assert config.tracking_uri == f"sqlite:///{tmp_path}/runs.db"
    assert config.features.options()["weights"] == f"{tmp_path}/w"
    assert load_config(None, ["work_dir=~/x"]).work_dir == Path("/home/somebody/x")


def test_a_path_starts_from_the_file_that_it_is_written_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the command line from the current directory, and one of the configurations of the package."""
    monkeypatch.setenv("PWD", "/somewhere")
    monkeypatch.delenv("VSE_DATA", raising=False)
    folder, here = tmp_path / "folder", tmp_path / "here"
    (folder / "network").mkdir(parents=True)
    here.mkdir()
    monkeypatch.chdir(here)
    tables = "{train: t.csv, dev: 10 %, test: s3://bucket/t.csv, more: '${PWD}/t.csv'}"
    path = written(
        folder,
        f"dataset: {{format: table, images: ../photos, tables: {tables}}}\nwork_dir: work\n"
        "tracking: {uri: 'sqlite:///runs.db'}\nfeatures: {extractor: grid, weights: network}\n",
    )
    config = load_config(Path("../folder") / path.name, ["storage.address=there"])
    assert config.dataset.options()["tables"] == {
        "train": f"{folder}/t.csv",
        "dev": "10 %",
        "test": "s3://bucket/t.csv",
        "more": "/somewhere/t.csv",
    }
    assert (config.dataset.options()["images"], config.storage.address) == (f"{tmp_path}/photos", f"{here}/there")
    assert (config.work_dir, config.tracking_uri) == (folder / "work", f"sqlite:///{folder}/runs.db")
    assert config.features.options()["weights"] == f"{folder}/network"
    text = layers.file_layers(path)[-1].values["features"]["weights"]
    assert type(pickle.loads(pickle.dumps(text))) is str
    assert yaml.safe_dump([text]) == "- network\n"
    assert load_config(layers.PACKAGED / "table.yaml").dataset.options()["images"] == f"{here}/data/images"


def test_weights_name_a_shipped_network_a_folder_or_the_hub(tmp_path: Path) -> None:
    def weights(value: str) -> str:
        config = load_config(None, [f"features={{extractor: grid, weights: '{value}'}}"])
        return str(config.features.options()["weights"])

    assert (Path(weights("tiny_resnet")) / "config.json").is_file()
    assert weights(str(tmp_path)) == str(tmp_path)
    assert weights("microsoft/resnet-50") == "microsoft/resnet-50"


def test_what_is_not_configured_is_derived() -> None:
    config = load_config(None, ["work_dir=/w", "name=n"])
    assert (config.tracking_uri, config.experiment.name, config.registered_model) == (
        "sqlite:////w/mlflow.db",
        "n",
        "n",
    )


@pytest.mark.parametrize(
    ("text", "steps"), [("4 epochs", 400), ("1 epoch", 100), ("0.5 epochs", 50), ("1132 steps", 1132), ("0 steps", 0)]
)
def test_durations(text: str, steps: int) -> None:
    assert Duration.parse(text).steps(100) == steps
    assert str(Duration.parse(text)) == text


@pytest.mark.parametrize("value", ["4", "4 days", "epochs", "-1 steps", "1.5 steps", "[1]"])
def test_what_is_no_duration(value: str) -> None:
    assert 'write it as "4 epochs" or "1132 steps"' in message(f"loss.all_negatives={value}")


HINGE = "margin: 0.2, reduction: mean, mask_same_image: false, all_negatives: 0 epochs"
MISTAKES = {
    # unknown keys: the nearest among the siblings, else of a similar name anywhere, else all siblings
    "training.lerning_rate=1": (
        "training.lerning_rate: unknown key with the value 1 (from --set); did you mean training.learning_rate?"
    ),
    "trainig.epochs=1": "did you mean training?",
    "model.image.pooling.temprature=1": "did you mean model.image.pooling.temperature?",
    "dataset.imagess=1": "did you mean dataset.images?",
    "storage.keys={token: planted-one, zone: 1}": "unknown key with the value {'token': '***', 'zone': 1}",
    "qqq=1": "the keys there are name, preset, seed",
    # wrong types and values
    "training.epochs=ten": "training.epochs: must be a number, in decimal (12, 0.5, 1e-3), got 'ten'",
    "training.epochs=1_000": "got '1_000'",
    "loss.margin=2.1": "loss.margin: should be less than or equal to 2; got 2.1",
    "training.gpus_per_worker=1.5": "training.gpus_per_worker: must be a share of a GPU, at most 1, or a whole number",
    "training.learning_rate=.nan": "training.learning_rate: should be a finite number",
    "training=5": "training: should be a valid dictionary",
    "storage.address=s3://": "write s3://BUCKET/FOLDER",
    "storage.address=file:///data": "storage.address: is not an address: write the path of a folder, or s3://BUCKET/FOLDER",
    "work_dir=/data/50%41": "work_dir: /data/50%41 has %41 in it, which means something else in the address",
    "dataset={format: table, tables: {train: a.csv, dev: b.csv}, share_seed: 3}": "unless a table is a share",
    "storage.cache_gb=10": "has no effect without an address",
    "name=a b": "name: String should match pattern",
    # variants
    "dataset.format=flikcr": "dataset.format: must be one of flickr, karpathy, table, webdataset, precomputed, "
    "hgr, scenes; got 'flikcr'",
    "model.text.pooling.name=gop": "did you mean gpo?",
    "loss.reduction=summ": "loss.reduction: must be one of sum, mean; got 'summ' (from --set); did you mean sum?",
    "features.extractor=precomputed": "cannot read dataset.format 'scenes'; set features.extractor to 'grid'",
    "dataset=5": "dataset: must be a mapping with the key 'format'; got 5 (from --set)",
    # presets
    "preset=vse_infinity": "did you mean vse_infty",
    # the command line itself
    "training.epochs": "write it as key=value",
    "seed=18446744073709551616": "seed: must be a number below 2^63",
    "training.workers=[8, 2]": "training.workers: must be a number from 1, or the fewest and the most",
    "features.cpus_per_actor=1.0e+308": "features.cpus_per_actor: must be a number below 2^63",
    "features.cpus_per_actor=" + "9" * 300: "must be a number below 2^63",
    f"loss.all_negatives={'9' * 400} epochs": "must be a number below 2^63",
    **{
        f"{key}={'x' * 300}": "at most 255"
        for key in ("features.weights", "parsing.pipeline", "work_dir", "storage.address")
    },
    "model.image={mlp: false, norm_rows: padded}": "no effect without the MLP",
    "loss={name: adopt, variant: paper, margin: 0.5, mask_same_image: false}": "margin: has no effect on the paper's",
    "loss={name: adopt, constant: 7, mask_same_image: false}": "constant: has no effect with the count adaptive",
    "loss={name: adopt, count: random, constant: 7, mask_same_image: false}": "set count to constant",
    **{
        f"loss={{name: multi_view, bound: {bound}, lam: 0.5, {HINGE}}}": f"lam: has no effect with the bound {bound}"
        for bound in ("max", "avg", "up", "up_rough")
    },
    "model.image.center=regions": "for UniVSE's encoder, which compares regions with words; set it to true",
    "evaluation.protocols=[retrieval, cxc]": "the protocol cxc needs the folder of ",
    "evaluation.first_images=9": "first_images: has no effect without one of the protocols attack",
    "evaluation.protocols=[attack]": "retrieval comes first",
    "evaluation.protocols=[retrieval, attack, attack]": "retrieval comes first",
    "work_dir=~nouser/x": "work_dir: ~nouser/x: this machine has no user 'nouser'",
    "name={": "--set name='{': is not YAML",
    "name=${VSE_TEST_UNSET}": "environment variable VSE_TEST_UNSET is not set",
}


COMPONENTS = "{name: components, word_dim: 8, modifier_dim: 4, train_words: true, alpha: 1}"
# What does not go together.
CLASHES = {
    ("model.image={projections: 2, mlp: false}", "model.image.views=3"): "or projections to 1",
    ("model.image={projections: 2, mlp: false}", "model.image.mlp=true"): "or projections to 1",
    (
        "model.image={projections: 2, mlp: false}",
        "model.image.pooling={name: adpool}",
    ): "which adpool does not; set pooling"
    " to one of mean, max, kmax, cls, last, gpo, gpo_transformer, gem, softpool, or projections to 1",
    (f"model.text={COMPONENTS}",): "go together",
    ("preset=univse", "loss={name: infonce, temperature: 0.1, mask_same_image: false}"): "'unified' goes with",
    ("preset=univse", "model.text.train_words=false"): "train_words: without word_vectors",
    ("preset=univse", "loss.relation_negatives=[1, 2]"): "loss.relation_negatives.2: is missing",
}


@pytest.mark.parametrize(
    ("overrides", "expected"), [*(((one,), text) for one, text in MISTAKES.items()), *CLASHES.items()], ids=str
)
def test_one_message_says_what_is_wrong(overrides: tuple[str, ...], expected: str) -> None:
    text = message(*overrides)
    assert expected in text
    assert "\n" not in text


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize(("storage", "work_dir"), [("a", "a"), ("a/b", "a"), ("a", "a/b"), ("a/../b/c", "b")])
def test_a_storage_lies_apart_from_the_work_folder(tmp_path: Path, storage: str, work_dir: str, link: bool) -> None:
    """Making room would delete the only copies."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    text = message(
        f"work_dir={tmp_path / 'real' / work_dir}",
        f"storage.address={tmp_path / ('link' if link else 'real') / storage}",
    )
    assert text.startswith("storage.address: ")
    assert "name folders that lie apart" in text


def test_a_storage_next_to_the_work_folder_is_taken(tmp_path: Path) -> None:
    config = load_config(None, [f"work_dir={tmp_path}/work", f"storage.address={tmp_path}/work2"])
    assert config.mirror.address == f"{tmp_path}/work2"


@pytest.mark.parametrize("text", [text for text, _ in YAML.values()], ids=YAML)
def test_hostile_yaml_is_one_message(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, text)
    for told in (message(path=path), message(f"name={{{text}}}")):
        assert "is not YAML" in told
        assert "\n" not in told
        assert len(told) < 700


def test_several_problems_are_told_together() -> None:
    text = message("training.epochs=ten", "qqq=1", "dataset.format=flickr")
    assert text.splitlines()[0] == "5 problems in the configuration:"
    assert "dataset.tokens: is missing (captions" in text
    assert "--set dataset.tokens=" in text


def test_a_message_names_the_file_that_is_wrong(tmp_path: Path) -> None:
    path = written(tmp_path, SCENES + "training: {epochs: ten}\n")
    assert f"(from {path})" in message(path=path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", "is not YAML"),
        ("a: !!python/object:x {}", "is not YAML"),
        ("a: 1\nb: 2\na: 3\n", "is not YAML: the key 'a' is given twice"),
        ("- 1", "must hold a mapping"),
        ("", "must hold a mapping"),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, text: str, expected: str) -> None:
    path = written(tmp_path, text)
    assert message(path=path).startswith(f"--config {path}: {expected}")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(60_000_000)
    assert "cannot be read: No such file" in message(path=tmp_path / "none.yaml")
    assert "cannot be read: File name too long" in message(path=tmp_path / ("a" * 5000))
    assert "cannot be read: it has 60,000,000 bytes" in message(path=tmp_path / "large.yaml")
    for path in (Path("/dev/zero"), tmp_path / "fifo", tmp_path):
        assert message(path=path) == f"--config {path}: cannot be read: it is not a regular file"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1:30, 0x10, 0o17, 1_000, 0b1, on, yes, off, No, 2024-01-01, =, 1e]", None),
        ("[5, +5, -5, 010, 1e-3, 1e3, .5, 5., -.5E+2]", [5, 5, -5, 10, 0.001, 1000.0, 0.5, 5.0, -50.0]),
        ("[true, True, FALSE, null, ~, NULL, '']", [True, True, False, None, None, None, ""]),
    ],
)
def test_words_and_numbers_are_those_of_yaml_1_2(text: str, value: object) -> None:
    assert load_yaml(text) == (value or text[1:-1].split(", "))


def test_a_preset_may_inherit_several_parts(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(layers, "PRESETS", tmp_path)
    (tmp_path / "_one.yaml").write_text("seed: 1\nname: one\n")
    (tmp_path / "_two.yaml").write_text("seed: 2\ntraining: {epochs: 2}\n")
    (tmp_path / "both.yaml").write_text("inherits: [_one, _two]\ntraining: {epochs: 3}\n")
    found = layers.preset_layers("both")
    assert layers.merged(found) == {"seed": 2, "name": "one", "training": {"epochs": 3}}
    assert [layer.origin for layer in found] == ["preset _one", "preset _two", "preset both"]


def test_a_file_may_inherit_another(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(SCENES + "seed: 3\ntraining: {epochs: 7, batch_size: 4}\n")
    config = load_config(written(tmp_path, "inherits: base.yaml\ntraining: {epochs: 2}\n"))
    assert (config.seed, config.training.epochs, config.training.batch_size) == (3, 2, 4)


def test_files_that_inherit_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("inherits: config.yaml\n")
    assert "inherits itself through" in message(path=written(tmp_path, "inherits: base.yaml\n"))
    assert "must name one file" in message(path=written(tmp_path, "inherits: [a, b]\n"))
    assert "other.yaml: cannot be read" in message(path=written(tmp_path, "inherits: other.yaml\n"))


def test_parts_of_presets_are_no_presets(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(layers, "PRESETS", tmp_path)
    (tmp_path / "_one.yaml").write_text("seed: 1\n")
    with pytest.raises(ConfigError, match="unknown"):
        layers.preset_layers("_one")


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.image={projections: 2, mlp: false}"],
        ["loss={name: adopt, variant: paper, margin: 0.2, mask_same_image: false}"],
        ["loss={name: adopt, count: constant, constant: 7, mask_same_image: false}"],
        *([f"loss={{name: multi_view, bound: {bound}, lam: 0.5, {HINGE}}}"] for bound in ("joint", "journal")),
        [f"loss={{name: multi_view, bound: up, lam: 0.7, {HINGE}}}"],
        ["evaluation.protocols=[retrieval, cxc]", "evaluation.cxc=/data/x"],
        ["evaluation.protocols=[retrieval, attack]", "evaluation.first_images=9"],
    ],
)
def test_what_goes_together_is_taken(overrides: list[str]) -> None:
    load_config(None, overrides)


def test_a_removed_setting_may_be_off() -> None:
    off = ["loss.view_orthogonality=0", "training.view_dropout=0", "dataset.averaged=false"]
    load_config(None, [*off, "model.image.block_epochs=0"])
    assert "unknown key" in message("loss.view_orthogonality=0.1")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("model.image.center=all", "model.image.center: should be a valid boolean, or must be regions; got 'all'"),
        (
            "model.text.pooling={name: adpool, token_share: x}",
            "model.text.pooling.token_share: must be one of learned, random, or must be a number, in decimal "
            "(12, 0.5, 1e-3); got 'x'",
        ),
        ("retrain.notify=[1, 2]", "retrain.notify: should be a valid string; got [1, 2]"),
    ],
)
def test_a_wrong_value_of_a_setting_of_several_types_is_one_problem(override: str, expected: str) -> None:
    found = message(override)
    assert found.startswith(f"{expected} (from --set). Meaning: ")
    assert "\n" not in found


@pytest.mark.parametrize("name", sorted(POOLINGS))
def test_every_aggregator_can_be_configured(name: str) -> None:
    config = load_config(None, [f"model.image.pooling={{name: {name}}}"])
    options = config.model.image.pooling.model_dump()
    assert options["name"] == name
    build_pooling(dim=8, **options)


def test_graphs_are_read_where_something_needs_them() -> None:
    assert not load_config(None).reads_graphs
    assert load_config(None, ["preset=univse"]).kind.reads_graphs
    assert load_config(None, ["preset=vse_c"]).kind.reads_graphs
    evaluated = load_config(None, ["evaluation.protocols=[retrieval, attack]"])
    assert evaluated.reads_graphs
    assert not evaluated.kind.reads_graphs
    assert not load_config(None, ["evaluation.protocols=[retrieval, coco_1k, msr_vtt]"]).reads_graphs
    assert load_config(None, ["evaluation.protocols=[retrieval, coco_1k, dependencies]"]).reads_graphs


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_can_be_configured(name: str) -> None:
    settings = {"name": name, "mask_same_image": True}
    settings |= {
        "triplet": {"margin": 0.2, "reduction": "sum", "all_negatives": "1 epoch"},
        "multi_view": {"margin": 0.2, "reduction": "sum", "all_negatives": "1 epoch"},
        "infonce": {"temperature": 0.05},
        "complementary": {"trusting": "1 epoch"},
    }.get(name, {})
    systems = {"unified": "univse", "vse_c": "vse_c", "hierarchical": "hgr_infty"}
    overrides = [f"preset={systems[name]}"] if name in systems else [f"loss={settings}".replace("True", "true")]
    if name == "hierarchical":
        overrides.append("model.text.graphs=graphs.json")
    config = load_config(None, overrides)
    assert config.loss.name == name
    build_loss(config.loss.name, **config.loss.options())


def test_the_password_of_an_address_is_in_no_dump() -> None:
    uri = "postgresql://mlflow:planted%40word@db/mlflow"
    config = load_config(None, [f"tracking.uri={uri}"])
    shown = "postgresql://mlflow:***@db/mlflow"
    assert config.tracking_uri == config.experiment.uri == shown
    dumps = [repr(config), str(config.experiment), config.model_dump_json(), str(config.model_dump())]
    dumps += [yaml.safe_dump(config.model_dump(mode="json")), pickle.dumps(config).decode("latin-1")]
    assert all(shown in dump and "planted" not in dump for dump in dumps)
    copy = PipelineConfig.model_validate(config.model_dump(mode="json"))
    assert SecretAddress(copy.tracking_uri).reveal() == uri


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("tracking.uri=postgresql://u:pl@nted@db/x", "tracking.uri: write a password percent-encoded"),
        ("tracking.uri=postgresql://u:pl/nted@db/x", "tracking.uri: write a password percent-encoded"),
        ("tracking.uri=postgresql://u:plan'ted@db/x", "tracking.uri: write a password percent-encoded"),
        ("storage.address=s3://key:planted@bucket", "storage.address: holds a password or token: leave it out; S3"),
        ("tracking.artifacts=s3://key:planted@bucket", "tracking.artifacts: holds a password or token"),
        ("ray.address=ray://u:planted@head:10001", "ray.address: holds a password or token"),
        ("traking.uri=http://u:planted@host", "traking: unknown key with the value {'uri': 'http://u:***@host'}"),
        ("tracking=http://u:planted@host", "got 'http://u:***@host'"),
    ],
)
def test_messages_about_an_address_do_not_show_its_password(override: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, [override])
    assert expected in str(caught.value)
    assert "nted" not in str(caught.value)


def test_another_name_in_the_registry_keeps_its_guards_and_its_card() -> None:
    """Unlike that of a variant, which has settings of its own."""
    production = "registry={name: prod, guards: {rsum: 0.5}, card: {data_licence: ours}}"
    registry = load_config(None, [production, "registry.name=staging"]).registry
    assert (registry.name, registry.guards, registry.card.data_licence) == ("staging", {"rsum": 0.5}, "ours")

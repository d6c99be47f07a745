"""Searching from the command line, over a registered model and over a register stage's directory."""

import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import mlflow
import numpy as np
import pytest

from pipelines.registry.registration import register_bundle
from pipelines.retrieval import search
from pipelines.retrieval.correction import Correction
from pipelines.retrieval.gallery_storage import STATE
from pipelines.retrieval.options import default_tracking_uri
from pipelines.retrieval.search_model import load_search_model
from pipelines.runtime.cli import guarded
from preprocessing.features.images import load_image
from tests.pipelines.tiny_bundle import write_tiny_bundle
from vse_core.digests import write_digests

ROOT = Path(__file__).resolve().parents[3]


def run(arguments: Sequence[str]) -> int:
    return guarded(partial(search.main, arguments))


class Place:
    """A folder with a registered model: its bundle and the address of its MLflow."""

    def __init__(self, folder: Path) -> None:
        self.bundle = write_tiny_bundle(folder / "bundle")
        self.uri = f"sqlite:///{folder / 'mlflow.db'}"
        mlflow.set_tracking_uri(self.uri)
        mlflow.set_registry_uri(self.uri)
        experiment = mlflow.create_experiment("tiny", artifact_location=(folder / "artifacts").as_uri())
        with mlflow.start_run(experiment_id=experiment):
            register_bundle(self.bundle, "tiny", "abc", [], {}, {})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("search"))


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_a_text_finds_images(place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "results.html"
    arguments = ["--model", "tiny", "--tracking-uri", place.uri, "-k", "3", "--output", str(page), "a <b>red</b> ring"]
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert "in the gallery of tiny/1" in out
    assert "image" in out
    assert out.count("scene://") == 3
    assert "a &lt;b&gt;red&lt;/b&gt; ring" in page.read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8").count("data:image/jpeg;base64,") == 3


def test_an_image_finds_captions(place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture, sheet = tmp_path / "query.png", tmp_path / "results.HTML"
    load_image("scene://0/3").save(picture)
    arguments = ["--model", str(place.bundle), "--image", str(picture), "-k", "4", "--output", str(sheet)]
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert "caption" in out
    assert sheet.read_text(encoding="utf-8").count("<li") == 4


def test_a_name_that_is_not_utf_8_is_spelt_out(place: Place, tmp_path: Path) -> None:
    picture, page = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png"), tmp_path / "results.html"
    load_image("scene://0/3").save(picture)
    assert run(["--model", str(place.bundle), "--image", picture, "--output", str(page)]) == 0
    assert r"caf\udce9.png" in page.read_text(encoding="utf-8")


def test_images_and_captions_find_themselves_first(place: Place) -> None:
    model = load_search_model(str(place.bundle), "unused")
    for record in model.gallery.records:
        hits = model.answer(record.image_uri, "image", 2, "images").hits
        assert hits[0].item_id == record.image_id
        assert hits[0].similarity == pytest.approx(1.0, abs=1e-3)
    _, caption = model.gallery.captions[7]
    assert model.answer(caption.text, "text", 1, "captions").hits[0].caption == caption.text


def test_a_search_corrects_hubs_and_shows_cosines(tmp_path: Path) -> None:
    model = load_search_model(str(write_tiny_bundle(tmp_path / "bundle", is_corrected=True)), "unused")
    correction = Correction.load(tmp_path / "bundle" / "correction")
    assert correction is not None
    query_D = model.embedder.embed_texts(["a red ring"])[0]
    cosines_B = (model.gallery.images_BKD @ query_D).amax(dim=1)
    bank_MB = (model.gallery.images_BKD @ correction.texts_MD.T).amax(dim=1).T
    scores_B = cosines_B - 0.1 * (bank_MB / 0.1).exp().sum(dim=0).log()
    order = scores_B.argsort(descending=True)
    assert order.tolist() != cosines_B.argsort(descending=True).tolist()
    hits = model.answer("a red ring", "text", 6, "images").hits
    assert [hit.item_id for hit in hits] == [model.gallery.records[image].image_id for image in order]
    assert [hit.similarity for hit in hits] == pytest.approx(cosines_B[order].tolist(), abs=1e-5)


def test_hits_have_the_confidence_of_the_softmax_over_the_gallery(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = write_tiny_bundle(tmp_path / "bundle", is_corrected=True)
    model = load_search_model(str(bundle), "unused")
    correction, biases = model.correction, model.gallery.biases
    assert correction is not None
    assert biases is not None
    query_D = model.embedder.embed_texts(["a red ring"])[0]
    scores_B = (model.gallery.images_BKD[:, 0] @ query_D) - biases.images_B
    shares = (scores_B / correction.calibrations["images"].temperature).softmax(dim=0).sort(descending=True).values
    for k in (1, 4, 6):
        confidences = [hit.confidence for hit in model.answer("a red ring", "text", k, "images").hits]
        assert confidences == pytest.approx(shares[:k].tolist(), abs=1e-4)
    image_KD = model.embedder.embed_images(["scene://0/2"])[0]
    scores_C = (image_KD @ model.gallery.texts_CD.T)[0] - biases.texts_C
    share = float((scores_C / correction.calibrations["captions"].temperature).softmax(dim=0).max())
    own = len(scores_C) / 6
    first = model.answer("scene://0/2", "image", 1, "captions").hits[0]
    assert first.confidence == pytest.approx(1 - (1 - share) ** own, abs=1e-4)
    assert model.answer("scene://0/2", "image", 1, "images").hits[0].confidence is None

    capsys.readouterr()
    assert run(["--model", str(bundle), "a red ring", "--min-confidence", "0.999"]) == 0
    assert "Nothing was found with a confidence of 100% or more." in capsys.readouterr().out


def test_a_search_warns_of_a_query_unlike_the_training_captions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = write_tiny_bundle(tmp_path / "bundle", is_corrected=True)
    model = load_search_model(str(bundle), "unused")
    assert model.correction is not None
    texts = [caption.text for _, caption in model.gallery.captions]
    near = [float((model.correction.texts_MD @ row).max()) for row in model.embedder.embed_texts(texts)]
    floor = np.quantile(near, 0.05)
    assert [bool(warning) for warning in model.warnings(texts, model.embed(texts, "text"), "text")] == [
        value < floor for value in near
    ]
    assert run(["--model", str(bundle), texts[int(np.argmin(near))]]) == 0
    told = capsys.readouterr()
    assert f"The query is unlike the captions of training: the nearest one has similarity {min(near):.3f}" in told.err
    assert "confidence" in told.out


def test_a_model_without_a_bank_has_no_confidence(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--model", str(place.bundle), "a red ring", "--min-confidence", "0.5"]) == 1
    assert "hits have no confidence when images are searched with texts" in capsys.readouterr().err


def test_another_gallery_is_refused(place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mixed = shutil.copytree(place.bundle, tmp_path / "mixed")
    with (mixed / "gallery" / "embeddings.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    write_digests(mixed / "gallery")
    assert run(["--model", str(mixed), "a red ring"]) == 1
    assert "gallery/digests.json is damaged" in capsys.readouterr().err
    write_digests(mixed)  # even one whose list says so
    assert run(["--model", str(mixed), "a red ring"]) == 1
    assert "was built from another gallery" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "nope", "a ring"], "'nope' is not a registered model; registered models: tiny"),
        (["--model", "tiny/9", "a ring"], "no version 9; its versions: 1"),
        (["--model", "tiny", "--image", "/not/there.jpg"], "--image /not/there.jpg: there is no such file"),
        (["--model", "tiny", "--queries", "/not/there.txt", "--output", "out.csv"], "/not/there.txt: there is no such"),
        (["--model", "tiny", "--queries", __file__, "--output", "out.html"], "use .parquet or .csv"),
        (["--model", "tiny/1", "--image", "scene://nonsense"], "cannot search with the image 'scene://nonsense'"),
        (["--model", "tiny/1", "  "], "cannot search with the text '  ': the text is empty"),
        (["--model", "tiny", "a ring", "--output", "out.pdf"], "has the suffix '.pdf'; use .html"),
        (["--model", "tiny", "a ring", "--output", "/not/there/out.html"], "there is no directory /not/there"),
        (["--model", "/not/there", "a ring"], "/not/there holds no model"),
        (
            ["--model", "tiny", "a ring", "--tracking-uri", "sqlite:////not/there.db"],
            "the MLflow database /not/there.db does not exist",
        ),
    ],
)
def test_mistakes_end_with_one_message(
    place: Place, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(["--tracking-uri", place.uri, *arguments]) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "tiny"],
        ["--model", "tiny", "a", "--image", "b"],
        ["a"],
        ["--model", "tiny", "a", "-k", "0"],
        ["--model", "tiny", "--queries", "q.txt"],
        ["--model", "tiny", "a", "--kind", "image"],
    ],
)
def test_a_wrong_command_line_is_status_1(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        search.main(arguments)
    assert caught.value.code == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_the_default_address_follows_the_work_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSE_WORK_DIR", "/some/where")
    assert default_tracking_uri() == "sqlite:////some/where/mlflow.db"
    monkeypatch.delenv("VSE_WORK_DIR")
    assert default_tracking_uri() == f"sqlite:///{Path.home()}/vse-work/mlflow.db"


def test_a_misspelt_gallery_is_told_with_those_that_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VSE_WORK_DIR", str(tmp_path))
    for name in ("holiday", "failed"):
        (tmp_path / "galleries" / name).mkdir(parents=True)
    (tmp_path / "galleries" / "holiday" / STATE).touch()
    assert run(["--gallery", "holidy", "a ring"]) != 0
    assert f"no gallery 'holidy' in {tmp_path}/galleries (holiday); " in capsys.readouterr().err

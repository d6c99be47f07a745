"""The report of a run: everything is there, what is missing is said, nothing is taken for what it is not."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.config import load_config
from pipelines.config.training import EvaluationConfig
from pipelines.reporting import published
from pipelines.reporting.configuration import differences
from pipelines.reporting.data import data
from pipelines.reporting.galleries import best_queries, galleries, worst_queries
from pipelines.reporting.published import figure_names, published_rows
from pipelines.reporting.results import results
from pipelines.reporting.run import Run
from pipelines.reporting.write import section_html, write_report
from tests.pipelines.reporting.finished_run import STAGES, finished_run, plan, write_manifest
from tests.pipelines.templates.tags import tags
from vse_core.evaluation.protocols import RECALLS, RETRIEVAL_PROTOCOLS, VIDEO_PROTOCOLS


def rows(content: str) -> list[list[str]]:
    """The cells of every row of every table."""
    found = re.findall(r"<tr[^>]*>(.*?)</tr>", content, re.DOTALL)
    return [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in found]


def test_the_page_has_all_parts_is_small_and_the_same_each_time(tmp_path: Path) -> None:
    config, plans = finished_run(tmp_path)
    path = write_report(Run.read(config, plans), "f" * 64)
    assert path == tmp_path / "pipelines" / ("f" * 16) / "report.html"
    first = path.read_bytes()
    assert len(first) < 5_000_000
    parsed = tags(first.decode())
    assert not parsed.open
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", first.decode())
    assert headings == ["Configuration", "Data", "Results", "Galleries"]
    sources = [attributes["src"] for tag, attributes in parsed.seen if tag == "img"]
    assert len(sources) > 20
    assert all(source is not None and source.startswith("data:image/") for source in sources)
    links = [attributes["href"] for tag, attributes in parsed.seen if tag == "a"]
    assert all(link is not None and link.startswith("#") for link in links)
    assert write_report(Run.read(config, plans), "f" * 64).read_bytes() == first


def test_hostile_captions_and_names_do_no_harm(tmp_path: Path) -> None:
    config, plans = finished_run(tmp_path)
    content = write_report(Run.read(config, plans), "f" * 64).read_text()
    assert "&lt;script&gt;alert(" in content
    parsed = tags(content)
    assert "script" not in {tag for tag, _ in parsed.seen}
    assert not [attributes for _, attributes in parsed.seen if any(name.startswith("on") for name in attributes)]


def test_what_is_missing_is_said_by_every_part(tmp_path: Path) -> None:
    config = load_config(None, [f"work_dir={tmp_path}"])
    plans = {name: plan(tmp_path, name, is_done=False) for name in STAGES}
    content = write_report(Run.read(config, plans), "f" * 64).read_text()
    assert "0 of 4 stages are done." in content
    said = re.findall(r'<p class="missing">Not there: (.*?)</p>', content)
    for beginning in ("no split has been extracted", "metrics: the evaluation has not", "search results"):
        assert [text for text in said if text.startswith(beginning)], beginning


@pytest.mark.parametrize("preset", ["hgr", "hgr_infty"])
def test_a_file_that_only_the_user_can_name_is_no_difference(preset: str) -> None:
    config = load_config(None, [f"preset={preset}", "model.text.graphs=/data/graphs.json"])
    assert "model.text.graphs" not in {
        key for key, _, _ in differences(config.preset, config.model, config.loss, config.training)
    }


def test_differences_from_the_preset_are_those_of_the_configuration() -> None:
    config = load_config(None, ["loss.margin=0.3", "model.image.pooling={name: kmax, k: 5}"])
    found = {
        key: (there, here)
        for key, there, here in differences(config.preset, config.model, config.loss, config.training)
    }
    assert found["loss.margin"] == ("0.2", "0.3")
    assert found["model.image.pooling.name"] == ("gpo", "kmax")
    assert found["model.image.pooling.k"] == ("not there", "5")
    assert found["training.epochs"] == ("25", "4")
    assert "training.gradient_clip" not in found
    assert "loss.reduction" not in found


def test_data_counts_splits_and_reasons(tmp_path: Path) -> None:
    section = section_html(data, Run(*finished_run(tmp_path)))
    found = rows(section)
    assert ["train", "7", "6", "12", "1", "1.5"] in found
    assert ["train", "images", "not an image", "1"] in found
    assert "The vocabulary has 1,234 entries." in section
    assert "5,678 captions of these splits are longer than the text encoder reads: their ends were cut off." in section


def test_measured_figures_stand_beside_published_ones_of_the_same_protocol(tmp_path: Path) -> None:
    config, plans = finished_run(tmp_path)
    metrics = dict.fromkeys(RECALLS, 50.04) | {"rsum": 300.24, "rsum_low": 290.0, "rsum_high": 310.0}
    named = {**metrics, **{f"coco_5k/{name}": value for name, value in metrics.items()}}
    write_manifest(plans["evaluate"].directory, {"metrics": named})
    settings = EvaluationConfig(protocols=("retrieval", "coco_5k"))
    section = section_html(results, Run(config.model_copy(update={"evaluation": settings}), plans))
    table = section.partition("COCO 5K")[2].partition("</table>")[0]
    ours, *others = [row for row in rows(table) if len(row) == 10 and row[0]]
    assert ours == ["scenes", *["50.0"] * 6, "300.2", "measured", "95 % interval of RSUM: 290.0 to 310.0"]
    assert len(others) == len(published_rows("coco_5k")) > 5
    assert all(row[8].startswith("published (") for row in others)
    assert ["MV-VSE, region, BERT", "59.1", "86.3", "92.5", "42.5", "72.8", "83.1", "436.3"] in [
        row[:8] for row in others
    ]
    assert table.count('class="measured"') == 1
    assert "other images and captions" not in section


@pytest.mark.parametrize(
    ("protocol", "headers", "printed"),
    [
        ("vatex", "video to text R@1,R@5,R@10,text to video R@1", "VSE-infinity, I3D, BiGRU|51.2|78.7|86.3|34.2"),
        ("cxc", "image to text R@1,R@5,text to image R@1,R@5", "VSE-infinity, grid, BERT|60.6|87.4|46.2|76.3"),
    ],
)
def test_videos_and_crisscrossed_captions_have_tables_of_their_own(
    tmp_path: Path, protocol: str, headers: str, printed: str
) -> None:
    config, plans = finished_run(tmp_path)
    plain = dict.fromkeys(RECALLS, 50.04) | {"rsum": 300.24}
    named = {f"{protocol}/{name}": 40.0 for name in figure_names(protocol)}
    write_manifest(plans["evaluate"].directory, {"metrics": plain | named})
    settings = config.evaluation.model_copy(update={"protocols": ("retrieval", protocol)})
    section = section_html(results, Run(config.model_copy(update={"evaluation": settings}), plans))
    table = section.partition({"vatex": "VATEX", "cxc": "Crisscrossed Captions"}[protocol])[2].partition("</table>")[0]
    found = [row[:5] for row in rows(table)]
    assert re.findall("<th[^>]*>(.*?)</th", table)[1:5] == headers.split(",")
    assert ["scenes", *["40.0"] * 4] in found
    assert printed.split("|") in found


def test_published_rows_are_of_known_protocols_and_tell_sums_that_do_not_add_up() -> None:
    found = 0
    for protocol in (*RETRIEVAL_PROTOCOLS, *VIDEO_PROTOCOLS, "cxc", "attack", "components", "dependencies"):
        for row in published_rows(protocol):
            found += 1
            assert len(row.figures) == len(figure_names(protocol)), row
            if row.printed_sum is not None and None not in row.figures:
                adds_up = abs(sum(row.figures) - row.printed_sum) < 0.31
                assert ("its figures add up to" in row.remark) is not adds_up, row
    assert found == len(Path(published.__file__).with_suffix(".csv").read_text().splitlines()) - 1
    assert [row.remark.partition(";")[0] for row in published_rows("flickr30k_1k") if row.printed_sum == 524.7] == [
        "its figures add up to 519.2"
    ]
    assert published_rows("flickr8k_1k") == []


def test_univses_tables_have_a_row_for_each_part_of_its_captions(tmp_path: Path) -> None:
    """What was not measured, as attacks on captions without a relation, is an empty cell."""
    config, plans = finished_run(tmp_path)
    plain = dict.fromkeys(RECALLS, 50.04) | {"rsum": 300.24}
    parts = {f"attack_{part}/object_r01": 30.0 for part in ("sentences", "objects", "attributes", "relations")}
    own = {"attack/object_r01": 45.0, "attack/total": 45.0, "components/objects_map": 39.5, "components/sum": 39.5}
    write_manifest(plans["evaluate"].directory, {"metrics": {**plain, **own, **parts}})
    settings = EvaluationConfig(protocols=("retrieval", "attack", "components"))
    assert "COCO" not in section_html(results, Run(config.model_copy(update={"evaluation": settings}), plans))
    settings = settings.model_copy(update={"first_images": 1000})
    section = section_html(results, Run(config.model_copy(update={"evaluation": settings}), plans))
    attack, components = (
        section.partition(title)[2].partition("</table>")[0] for title in ("under attack", "that find")
    )
    assert re.findall("<th[^>]*>(.*?)</th", attack)[1:12:3] == ["object R@1", "attribute R@1", "relation R@1", "total"]
    assert [row[:3] for row in rows(attack) if row[-2:-1] == ["measured"]] == [
        ["scenes", "45.0", ""],
        *(["scenes, " + part, "30.0", ""] for part in ("sentences", "objects", "attributes", "relations")),
    ]
    assert attack.count('class="measured"') == 5
    assert ["UniVSE, ResNet-152 grid, GRU", "45.3", "78.3"] in [row[:3] for row in rows(attack)]
    assert ["scenes", "39.5", "", "", "", "39.5"] in [row[:6] for row in rows(components)]


def test_galleries_show_the_best_and_the_worst(tmp_path: Path) -> None:
    section = section_html(galleries, Run(*finished_run(tmp_path)))
    for title in ("Captions that find images", "Images that find captions"):
        for part in ("a sample, evenly spread", "the best", "the worst"):
            assert f"{title}: {part}" in section
    assert 'aria-label="relevant"' in section
    assert 'aria-label="irrelevant"' in section
    assert "above: the relevant image; first relevant result at rank" in section


def test_best_and_worst_queries_are_those_of_a_naive_sort() -> None:
    queries = pa.table(
        {
            "rank": [1, 7, 1, 9, 9, 2],
            "similarity": [0.5, 0.1, 0.9, 0.3, 0.2, 0.8],
            "first_similarity": [0.5, 0.4, 0.9, 0.5, 0.6, 0.9],
        }
    )
    naive = sorted(queries.to_pylist(), key=lambda row: (-row["rank"], row["similarity"] - row["first_similarity"]))
    assert [queries.to_pylist()[place] for place in worst_queries(queries, 3)] == naive[:3]
    assert worst_queries(queries, 3) == [4, 3, 1]
    assert best_queries(queries, 5) == [2, 0]

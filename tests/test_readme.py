"""README and docs/: what they promise runs, and the files, links, commands and keys that they name exist."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from pipelines.config import PipelineConfig, load_config
from pipelines.runtime.verbs import verbs

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# Made by `make docs`.
GENERATED = {DOCS / "configuration.md"}
PAGES = sorted({ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md"), *(ROOT / "infra").rglob("*.md")})
PAGES = [page for page in PAGES if page not in GENERATED]
CONFIGURATIONS = ROOT / "pipelines" / "config"
FOLDERS = ("docs", "infra", "pipelines", "preprocessing", "tests", "vse_core")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of code of a language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "data.md"], ids=["README.md", "data.md"])
def test_the_configuration_of_your_own_table_is_valid_and_short(page: Path, tmp_path: Path) -> None:
    (block,) = (block for block in blocks(page, "yaml") if "format: table" in block)
    assert len(block.splitlines()) <= 10
    file = tmp_path / "photos.yaml"
    file.write_text(block, encoding="utf-8")
    assert load_config(file).dataset.format == "table"


@each_page
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists() or linked in GENERATED, f"{page}: {target}"
        assert not anchor or anchor in anchors(linked), f"{page}: {target}"


@each_page
def test_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    paths = re.findall(rf"(?<![\w./-])((?:{'|'.join(FOLDERS)})/[\w./-]*)", text)
    missing = [path for path in paths if not (ROOT / path.rstrip(".")).exists() and ROOT / path not in GENERATED]
    assert [path for path in missing if not (page.parent / path).exists()] == []


@each_page
def test_configurations_and_presets_exist(page: Path) -> None:
    known = {file.name for file in CONFIGURATIONS.rglob("*.yaml")} | {file.name for file in (ROOT / "infra").rglob("*")}
    known |= {"photos.yaml"}
    text = page.read_text(encoding="utf-8")
    assert {name for name in re.findall(r"`(\w+\.yaml)`", text) if name not in known} == set()
    presets = {file.stem for file in (CONFIGURATIONS / "presets").glob("*.yaml")}
    named = set(re.findall(r"`((?:vse_pp|vse_infty|mv_vse|vse_2ad|univse|hgr)(?:_\w+)?)`", text))
    assert named <= presets


@each_page
def test_modules_and_options_of_commands_exist(page: Path) -> None:
    lines = "\n".join(blocks(page, "console")).replace("\\\n", " ").splitlines()
    commands = [line.removeprefix("$ ").partition("#")[0].split() for line in lines if line.startswith("$ ")]
    for command in commands:
        if command[0] == "make":
            assert re.search(rf"^{command[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        if "-m" in command:
            module = ROOT / command[command.index("-m") + 1].replace(".", "/")
            assert module.with_suffix(".py").exists() or (module / "__main__.py").exists(), command
        if command[0] == "vse":
            assert command[1] in verbs(), command
        if command[0] in ("python", "vse"):
            options = [word.partition("=")[0].removeprefix("--") for word in command if word.startswith("--")]
            assert [name for name in options if not re.search(rf'"(--)?{name}"', sources())] == [], command


@each_page
def test_keys_exist(page: Path) -> None:
    sections = set(PipelineConfig.model_fields)
    text = re.sub("^.*: unknown key .*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    keys = re.findall(r"[`\s]([a-z_]+(?:\.[a-z_]+)+)(?=[`=:])", text)
    known = keys_of(PipelineConfig)
    wrong = {key for key in keys if key.partition(".")[0] in sections and key not in known}
    assert {key for key in wrong if not key.endswith((".py", ".yaml", ".json", ".md", ".com"))} == set()


@functools.cache
def sources() -> str:
    """The text of everything that parses a command line."""
    folders = [ROOT / name for name in FOLDERS if name != "docs"]
    return "".join(file.read_text(encoding="utf-8") for folder in folders for file in folder.rglob("*.py"))


def keys_of(model: type[BaseModel], prefix: str = "") -> set[str]:
    """Every dotted key of a configuration, of all variants."""
    found = set()
    for name, field in model.model_fields.items():
        found.add(prefix + name)
        for inner in models_in(field.annotation):
            found |= keys_of(inner, f"{prefix}{name}.")
    return found


def models_in(annotation: object) -> list[type[BaseModel]]:
    """The models that a type may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in getattr(annotation, "__args__", ()) for model in models_in(argument)]


def test_published_tables_and_figures_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "benchmarks"))
    import tables

    outdated = [str(path) for path, text in tables.published().items() if path.read_text(encoding="utf-8") != text]
    assert outdated == [], "run python tests/benchmarks/tables.py"


def test_the_benchmarks_that_make_runs_exist() -> None:
    (names,) = re.findall(r"for name in ([\w ]+);", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert [name for name in names.split() if not (ROOT / f"tests/benchmarks/{name}.py").exists()] == []


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{citation["version"]}"' in project
    assert f"## [{citation['version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

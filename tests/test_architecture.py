"""Rules about imports that no linter of ours knows: the wings stay apart, undocumented APIs have one module each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WINGS = {
    "vse_core": {"ray", "mlflow", "boto3", "preprocessing", "pipelines", "infra"},
    "preprocessing": {"ray", "mlflow", "vse_core", "pipelines", "infra"},
}
LIBRARIES = ("mlflow.", "ray.", "torch.")


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imported(tree: ast.AST) -> Iterator[str]:
    """Modules and names of modules that a file imports, in full."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("wing", WINGS)
def test_the_wings_do_not_know_what_stands_on_them(wing: str) -> None:
    for path in sources(wing):
        found = {name.partition(".")[0] for name in imported(ast.parse(path.read_text()))} & WINGS[wing]
        assert not found, f"{path.relative_to(ROOT)} imports {found}"


def is_private(name: str) -> bool:
    return name.startswith("ray.train.v2.") or any(
        part.startswith("_") and not part.startswith("__") for part in name.split(".")
    )


def test_undocumented_apis_have_one_module_each() -> None:
    for path in [path for folder in ("pipelines", "preprocessing", "vse_core", "infra") for path in sources(folder)]:
        if path.name.endswith("_internals.py"):
            continue
        tree = ast.parse(path.read_text())
        names = [*imported(tree), *(ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute))]
        found = [name for name in names if name.startswith(LIBRARIES) and is_private(name)]
        assert not found, f"{path.relative_to(ROOT)} uses {found}: move it to the library's *_internals.py"


KIND_FOLDERS = ("vse_core.models.", "vse_core.losses.", "pipelines.kinds.")
REGISTRIES = {"vse_core/models/build.py", "vse_core/losses/__init__.py", "pipelines/kinds/__init__.py"}
ENCODERS = {"backbone", "dual_encoder", "regions", "levels", "bigru", "bert", "role_graphs"}


@cache
def imports() -> dict[str, set[str]]:
    """What each file outside the tests imports: modules, names of modules, and the modules of these names."""
    found = {}
    for path in [path for folder in ("pipelines", "preprocessing", "vse_core", "infra") for path in sources(folder)]:
        names = set(imported(ast.parse(path.read_text())))
        found[str(path.relative_to(ROOT))] = names | {name.rpartition(".")[0] for name in names}
    return found


def importers(modules: set[str]) -> set[str]:
    return {path for path, names in imports().items() if names & modules}


@pytest.mark.parametrize("kind", ["adversarial", "hierarchical", "unified"])
def test_only_its_own_modules_and_the_registries_know_a_kind_of_model(kind: str) -> None:
    others = importers({folder + kind for folder in KIND_FOLDERS}) - REGISTRIES
    strangers = {path for path in others if not path.startswith("pipelines/kinds/") and Path(path).stem != kind}
    assert not strangers, f"{strangers} import a module of the kind {kind}: ask the ModelKind instead"


def test_no_module_but_its_own_compares_the_name_of_an_encoder() -> None:
    homes = ("pipelines/schema/", "pipelines/kinds/", "vse_core/encoders/")
    for path in [path for path in map(Path, imports()) if not str(path).startswith(homes)]:
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.Compare) and "name" in ast.unparse(node):
                values = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
                assert not values & ENCODERS, f"{path}:{node.lineno} compares an encoder's name: ask its settings"

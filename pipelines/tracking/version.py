"""The version of the code, for the tags of runs."""

import subprocess
from importlib import metadata
from pathlib import Path


def code_version() -> dict[str, str]:
    """Return tags naming the code: the package's version; in a checkout also the commit, and whether it was changed."""
    tags = {"vse.version": _package_version()}
    root = Path(__file__).resolve().parents[2]
    if (root / ".git").exists():
        commit = _git(root, "rev-parse", "HEAD")
        if commit:
            tags["mlflow.source.git.commit"] = commit
            tags["vse.changed"] = str(bool(_git(root, "status", "--porcelain", "--untracked-files=no"))).lower()
    return tags


def _package_version() -> str:
    try:
        return metadata.version("vse-pipeline")
    except metadata.PackageNotFoundError:  # run from a working directory that was never installed
        return "not installed"


def _git(root: Path, *arguments: str) -> str:
    try:
        result = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.strip()

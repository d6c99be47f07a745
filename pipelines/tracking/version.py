"""The version of the code, for the tags of runs."""

import subprocess
from importlib import metadata
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def code_version() -> dict[str, str]:
    """Return tags naming the code: the package's version; in a checkout also the commit, and whether it was changed."""
    try:
        tags = {"vse.version": metadata.version("vse-pipeline")}
    except metadata.PackageNotFoundError:  # run from a working directory that was never installed
        tags = {"vse.version": "not installed"}
    if not (_ROOT / ".git").exists():
        return tags
    command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        result = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return tags
    commit, changed, _ = result.stdout.strip().partition("-dirty")
    return tags | {"mlflow.source.git.commit": commit, "vse.changed": str(bool(changed)).lower()}

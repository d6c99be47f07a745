"""A dozen environments in which something is missing, full, or away: commands of a finished pipeline, as processes."""

from __future__ import annotations

import os
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.seams.attack import defects
from tests.integration.seams.pipeline import MODEL, ROOT, Pipeline, Result

_SEARCH = ("search", "--model", MODEL, "a red ring")


class _Environment(NamedTuple):
    """A name, a command, what the shell does before it, variables, and limits that are set in the process."""

    name: str
    command: tuple[str, ...]
    before: str = ""
    after: str = ""
    variables: dict[str, str | None] = {}  # noqa: RUF012 (never changed)
    limit: tuple[int, int] | None = None


def _environments(pipeline: Pipeline, folder: Path) -> Iterator[_Environment]:
    config = ("--config", str(pipeline.config))
    full, other = ("full", *config), ("--set", f"work_dir={folder}/full")
    yield _Environment("no home", _SEARCH, variables={"HOME": None})
    yield _Environment("a home that is not there", _SEARCH, variables={"HOME": "/nowhere"})
    yield _Environment("a locale that is not there", _SEARCH, variables={"LC_ALL": "xx_XX.utf-8", "LANG": "xx"})
    yield _Environment(
        "ASCII",
        (*_SEARCH[:3], "ein röter Ring 🐕"),
        variables={"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    yield _Environment("no folder for temporary files", _SEARCH, variables={"TMPDIR": "/nowhere"})
    yield _Environment(
        "the working directory is gone",
        _SEARCH,
        before=f"mkdir {folder}/gone && cd {folder}/gone && rmdir {folder}/gone",
    )
    yield _Environment("stdout is closed", _SEARCH, after=">&-")
    yield _Environment("stdout is full", _SEARCH, after=">/dev/full")
    yield _Environment("stdout is a closed pipe", _SEARCH, after="| true")
    yield _Environment("stderr is closed", _SEARCH, after="2>&-")
    yield _Environment("stdin is closed", _SEARCH, after="<&-")
    yield _Environment("no rights by default", _SEARCH, before="umask 777")
    yield _Environment("two gigabytes of addresses", _SEARCH, limit=(resource.RLIMIT_AS, 2 * 2**30))
    yield _Environment("forty files", _SEARCH, limit=(resource.RLIMIT_NOFILE, 40))
    yield _Environment("files of a kilobyte", ("evaluate", *config, *other), limit=(resource.RLIMIT_FSIZE, 1024))
    yield _Environment(
        "a full disk", (*full, *other), before=f"mkdir {folder}/full && mount -t tmpfs -o size=64k tmpfs {folder}/full"
    )
    yield _Environment(
        "a read-only work folder",
        full,
        before=f"mount --bind {pipeline.work} {pipeline.work} && mount -o remount,bind,ro {pipeline.work}",
    )
    yield _Environment(
        "a read-only work folder is searched",
        _SEARCH,
        before=f"mount --bind {pipeline.work} {pipeline.work} && mount -o remount,bind,ro {pipeline.work}",
    )
    yield _Environment("no network", _SEARCH, before="ip link set lo down 2>/dev/null")
    yield _Environment("MLflow is away", (*_SEARCH, "--tracking-uri", "http://127.0.0.1:9"))
    yield _Environment("MLflow is away in a run", (*full, "--dry-run", "--set", "tracking.uri=http://127.0.0.1:9"))
    keys = {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_MAX_ATTEMPTS": "1",
    }
    yield _Environment("wrong keys of S3", (*full, "--dry-run", "--set", "storage.address=s3://vse/x"), variables=keys)
    yield _Environment("no keys of S3", (*full, "--dry-run", "--set", "storage.address=s3://vse/x"))
    yield _Environment("a work folder that is a file", _SEARCH, variables={"VSE_WORK_DIR": "/etc/passwd"})
    yield _Environment("numbers for threads that are none", _SEARCH, variables={"OMP_NUM_THREADS": "x"})


def _run(pipeline: Pipeline, environment: _Environment) -> Result:
    """Run a command in namespaces of its own, so that what is mounted there is nowhere else."""
    script, *arguments = environment.command
    command = shlex.join([sys.executable, str(ROOT / "pipelines" / f"{script}.py"), *arguments])
    text = f"{environment.before or 'true'}; {command} {environment.after}"
    variables = {
        **os.environ,
        "HOME": str(pipeline.root / "home"),
        "VSE_WORK_DIR": str(pipeline.work),
        **environment.variables,
    }
    limit: Callable[[], None] = lambda: None  # noqa: E731
    if environment.limit is not None:
        limit = lambda: resource.setrlimit(environment.limit[0], (environment.limit[1],) * 2)  # type: ignore[index]  # noqa: E731
    try:
        done = subprocess.run(
            ["unshare", "--mount", "--net", "bash", "-c", f"set -o pipefail; ip link set lo up 2>/dev/null; {text}"],
            cwd=pipeline.root,
            env={name: value for name, value in variables.items() if value is not None},
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=180,
            check=False,
            preexec_fn=limit,
        )
    except subprocess.TimeoutExpired:
        return Result(-9, "", "no end in 180 seconds")
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.nightly
@pytest.mark.timeout(3000)
def test_environments(finished: Pipeline, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("namespaces of its own need root")
    pipeline = finished.copy(tmp_path / "pipeline")
    wanted = _run(pipeline, _Environment("undamaged", _SEARCH))
    assert wanted.code == 0, wanted

    def results() -> Iterator[tuple[str, Result, Callable[[str], bool]]]:
        for environment in _environments(pipeline, tmp_path):
            result = _run(pipeline, environment)
            # Nothing that is printed can be seen there; the status tells.
            unseen = environment.after.startswith((">", "|"))
            if unseen and result.code in (1, 141) and not result.is_internal:
                result = Result(1, "", "error: the output cannot be written")
            yield environment.name, result, lambda out, unseen=unseen: unseen or _is_right(out, wanted.out)

    found = defects(results())
    assert not found, "\n".join(found)


def _is_right(printed: str, wanted: str) -> bool:
    """The results of the search, also of another text; what a dry run would do."""
    return printed == wanted or "to do" in printed or printed.count("scene://") == wanted.count("scene://")

"""A PostgreSQL server of the test's own: Debian's package, a folder of its own, a free port of the loopback."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.debian import require
from tests.ports import free_port

_USER = "mlflow"
_INITDB = "/usr/lib/postgresql/*/bin/initdb"


@contextmanager
def running() -> Iterator[dict[str, str]]:
    """Start a server, and yield libpq's variables of its empty database "mlflow", the password among them.

    Raises:
        UnavailableError: it is not installed and cannot be.
    """
    require((_INITDB, "createdb"), ("postgresql",))
    programs_folder = max(Path("/").glob(_INITDB[1:])).parent
    # PostgreSQL refuses to run as root, and its own user may not look into pytest's folders.
    account = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="vse-postgres-", dir="/tmp"))
    password = secrets.token_hex(8)
    (folder / "password").write_text(password)
    if account:
        shutil.chown(folder, "postgres", "postgres")
        shutil.chown(folder / "password", "postgres", "postgres")
    port = free_port()
    quiet = {"stdout": subprocess.DEVNULL, "cwd": folder, "check": True, **account}
    data = folder / "data"
    initdb = [programs_folder / "initdb", "--pgdata", data, "--username", _USER, "--no-sync", "--encoding", "UTF8"]
    subprocess.run([*initdb, "--auth", "scram-sha-256", "--pwfile", folder / "password"], **quiet)
    control = [programs_folder / "pg_ctl", "--pgdata", data, "--wait", "--silent", "--log", folder / "log"]
    options = f"-h 127.0.0.1 -p {port} -k {folder} -c fsync=off"
    subprocess.run([*control, "start", "--options", options], **quiet)
    try:
        database = {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": _USER, "PGPASSWORD": password}
        subprocess.run(["createdb", "mlflow"], env={**os.environ, **database}, check=True)
        yield {**database, "PGDATABASE": "mlflow"}
    finally:
        subprocess.run([*control, "stop", "--mode", "immediate"], **quiet)
        shutil.rmtree(folder, ignore_errors=True)

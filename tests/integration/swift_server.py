"""All of a small OpenStack Swift in one process: object, container and account server, and the proxy with its S3 API.

Run by Debian's own Python, which has Swift: /usr/bin/python3 swift_server.py FOLDER MEMCACHED_PORT. The port of the S3
API is written to FOLDER/port when everything answers. What is stored stays in FOLDER/srv.
"""

from __future__ import annotations

import sys
from pathlib import Path

import eventlet

eventlet.patcher.monkey_patch(all=False, socket=True, select=True, thread=True)  # as Swift's own programs do, and first

from eventlet import wsgi  # noqa: E402
from swift.common import utils  # noqa: E402
from swift.common.http_protocol import SwiftHttpProtocol  # noqa: E402
from swift.common.ring import RingBuilder  # noqa: E402
from swift.common.wsgi import loadapp  # noqa: E402

ACCESS_KEY, SECRET_KEY, REGION = "test:tester", "secret-of-the-tester", "us-east-1"

_COMMON = """
[DEFAULT]
swift_dir = {folder}
devices = {folder}/srv
mount_check = false
disable_fallocate = true
log_level = WARNING
"""
_BACKEND = """
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""
_PROXY = """
[pipeline:main]
pipeline = catch_errors healthcheck cache s3api tempauth slo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
node_timeout = 60
conn_timeout = 30
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:healthcheck]
use = egg:swift#healthcheck
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{memcached}
[filter:s3api]
use = egg:swift#s3api
location = {region}
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = {secret} .admin
[filter:slo]
use = egg:swift#slo
"""


def main(folder: Path, memcached: int) -> None:
    """Serve until the process is ended."""
    utils.HASH_PATH_PREFIX = utils.HASH_PATH_SUFFIX = b"vse"
    (folder / "srv" / "d1").mkdir(parents=True, exist_ok=True)
    sockets = {name: eventlet.listen(("127.0.0.1", 0)) for name in ("object", "container", "account", "proxy")}
    for name in ("object", "container", "account"):
        _write_ring(folder / f"{name}.ring.gz", sockets[name].getsockname()[1])
    for name, listener in sockets.items():
        settings = folder / f"{name}.conf"
        names = {"folder": folder, "name": name, "memcached": memcached, "region": REGION, "secret": SECRET_KEY}
        settings.write_text((_COMMON + (_PROXY if name == "proxy" else _BACKEND)).format(**names))
        app = loadapp(str(settings), global_conf={"log_name": name})
        # S3's clients look for "ETag", which eventlet would write "Etag".
        options = {"protocol": SwiftHttpProtocol, "capitalize_response_headers": False}
        eventlet.spawn(wsgi.server, listener, app, utils.NullLogger(), **options)
    aside = folder / "port.tmp"
    aside.write_text(str(sockets["proxy"].getsockname()[1]))
    aside.rename(folder / "port")
    while True:
        eventlet.sleep(3600)


def _write_ring(path: Path, port: int) -> None:
    """Tell the proxy where the one backend of a kind is."""
    builder = RingBuilder(2, 1, 0)
    builder.add_dev({"region": 1, "zone": 1, "ip": "127.0.0.1", "port": port, "device": "d1", "weight": 1.0})
    builder.rebalance()
    builder.get_ring().save(str(path))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

"""Ports of the loopback for the servers that tests and benchmarks start."""

from __future__ import annotations

import random
import socket

# Below the ports that Linux hands out by itself: Ray's processes take of those at any moment.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """A port that nothing listens on now."""
    draw = random.SystemRandom()  # tests next to these draw others, whatever the seed
    while True:
        port = draw.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port

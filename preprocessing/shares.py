"""Shares of a split's images, such as `10 %`, drawn so that a data set that grows moves no image to another split."""

import hashlib
import re

_SHARE = re.compile(r"\s*(\d{1,2}(?:\.\d+)?) ?%\s*")


def parse_share(text: object) -> float | None:
    """Return a share from 0 to 1 that is written as percent (``10 %``), None for anything else."""
    found = _SHARE.fullmatch(str(text))
    return float(found[1]) / 100 if found else None


def position(image: str, seed: int) -> float:
    """Return the place of an image between 0 and 1, by a hash of its id and the seed."""
    digest = hashlib.blake2b(f"{seed}/{image}".encode(errors="surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest) / 2**48

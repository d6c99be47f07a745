"""Addresses of files inside tar archives, which are read without going through the archive: `TAR#NAME@START+SIZE`."""

import re
from dataclasses import dataclass
from typing import Self

from preprocessing.storage.opening import open_address

_ADDRESS = re.compile(r"(?P<tar>.+\.tar)#(?P<name>.+)@(?P<start>\d+)\+(?P<size>\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TarMember:
    """A file inside a tar archive (an absolute path or ``s3://bucket/key``): its name, offset and size in bytes."""

    tar: str
    name: str
    start: int
    size: int

    @property
    def uri(self) -> str:
        """Return the address that `parse` reads."""
        return f"{self.tar}#{self.name}@{self.start}+{self.size}"

    @classmethod
    def parse(cls, uri: str) -> Self | None:
        """Return the file behind an address; None if it is the address of something else."""
        found = _ADDRESS.fullmatch(uri)
        if found is None:
            return None
        return cls(found["tar"], found["name"], int(found["start"]), int(found["size"]))

    def read(self) -> bytes:
        """Return its bytes; raise EOFError if the archive ends before the file does."""
        with open_address(self.tar) as file:
            file.seek(self.start)
            data = file.read(self.size)
        if len(data) != self.size:
            raise EOFError(f"{self.tar} ends before {self.name} does: it has changed, or was cut short")
        return data

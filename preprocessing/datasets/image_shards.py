"""Reader of WebDataset shards of images and captions, as img2dataset writes them."""

import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path, PurePosixPath
from typing import Self

from preprocessing.datasets.checks import require_image_folder
from preprocessing.datasets.record import Archive, Caption, DatasetError, Record
from preprocessing.reading import damage_as, parse_json
from preprocessing.storage.address import common_folder, is_s3, join, leads_out, relative, require_inner_name
from preprocessing.storage.base import Entry
from preprocessing.storage.opening import open_address, open_storage

# Bytes of a caption's file: a header may claim any number, and a sparse member stands for any number of zeros.
_LONGEST_TEXT = 1 << 24
_IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif", ".jp2")

_ADDRESS = re.compile(r"(?P<tar>.+\.tar)#(?P<name>.+)@(?P<start>\d+)\+(?P<size>\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TarMember:
    """A file inside a tar archive (an absolute path or ``s3://bucket/key``), read without going through the archive."""

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


class ImageShardsDataset:
    """Folders of tar archives in which files of one key are one sample: ``KEY.jpg``, ``KEY.txt``, ``KEY.json``.

    A key ends at the first dot of a file's name; names that begin with a dot are passed over. The caption is the
    ``.txt``, or the ``caption`` of the ``.json``, or there is none. Images are read from where they lie in the archive.
    The image id is ``ARCHIVE/KEY`` without ``.tar``, a caption's id ``ARCHIVE/KEY#0``. `folders` has each split's
    folder, local or ``s3://bucket/folder``, whose archives are taken in the order of their names.
    """

    def __init__(self, folders: Mapping[str, str | Path]) -> None:
        what = "webdataset, folders"
        self._folders = {split: require_image_folder(path, f"{what}.{split}") for split, path in folders.items()}
        try:
            self.root = common_folder(list(self._folders.values()))
        except ValueError as error:
            raise DatasetError(f"{what}: {error}") from error
        self.splits = tuple(folders)
        for split, folder in self._folders.items():
            if next(_archives(folder), None) is None:
                raise DatasetError(f"webdataset, 'folders.{split}': {folder} holds no *.tar")

    def archives(self, split: str) -> list[Archive]:
        """Return the archives of a split by name, from one listing of its folder."""
        folder = self._folders[split]
        found: list[Archive] = []
        for entry in _archives(folder):
            path = join(folder, entry.name)
            if not is_s3(path) and leads_out(path, folder):
                raise DatasetError(f"{path} is a link that leads out of its folder, and is not opened; copy it there")
            found.append(_Tar(path, (relative(path, self.root), entry.bytes, entry.version), split))
        return found

    def records(self, split: str) -> Iterator[Record]:
        """Yield the records of a split, archive by archive."""
        return chain.from_iterable(self.archives(split))


@dataclass(frozen=True, slots=True)
class _Tar:
    path: str
    stamp: tuple[str, int, str]
    split: str

    def __iter__(self) -> Iterator[Record]:
        with (
            damage_as(DatasetError, f"{self.path}: not a complete tar archive", "download it again"),
            open_address(self.path) as file,
            tarfile.open(fileobj=file, mode="r:") as archive,
        ):
            yield from _records(archive, self.path, self.split)


def _archives(folder: str) -> Iterator[Entry]:
    for entry in open_storage(folder).list():
        if entry.name.endswith(".tar") and "/" not in entry.name:
            yield entry


def _records(archive: tarfile.TarFile, path: str, split: str) -> Iterator[Record]:
    starts: dict[str, int] = {}
    for key, members in groupby(filter(_is_of_a_sample, archive), key=_key):
        of_sample = list(members)
        _check_sample(of_sample, path, key, starts)
        image_id = f"{PurePosixPath(path).stem}/{key}"
        # A sample without an image keeps its place, and is skipped when images are read.
        found = _file_of(of_sample, _IMAGES, path)
        image = TarMember(path, found.name, found.offset_data, found.size) if found else TarMember(path, key, 0, 0)
        text = _caption(archive, _file_of(of_sample, (".txt", ".json"), path), f"{path}, {key}")
        captions = () if text is None else (Caption(f"{image_id}#0", text),)
        yield Record(image_id, image.uri, split, captions)


def _check_sample(members: Sequence[tarfile.TarInfo], path: str, key: str, starts: dict[str, int]) -> None:
    """Refuse names that lead out of a folder, and a key that is there twice; `starts` has the byte where each began."""
    require_inner_name(key, path, DatasetError)
    files: dict[str, int] = {}
    for member in members:
        first = files.setdefault(member.name.lower(), member.offset) if key not in starts else starts[key]
        if first != member.offset:
            where = f"at bytes {first} and {member.offset} of the archive"
            raise DatasetError(
                f"{path}: two samples have the key {key!r}, {where}; rename or remove one of them, or, if they are the "
                "files of one sample, pack them next to each other (tar --sort=name)"
            )
    starts[key] = members[0].offset


def _file_of(members: Sequence[tarfile.TarInfo], kinds: Sequence[str], path: str) -> tarfile.TarInfo | None:
    """Return a sample's file of the first of these kinds that it has: `00012.png`, not `00012.seg.png`.

    Of `a.1.png` and `a.2.png` neither can be chosen, and a DatasetError names them: often they are two samples.
    """
    by_kind: dict[str, list[tarfile.TarInfo]] = {}
    for member in sorted(members, key=lambda member: member.name.count(".")):
        by_kind.setdefault(PurePosixPath(member.name.lower()).suffix, []).append(member)
    found = next((by_kind[kind] for kind in kinds if kind in by_kind), [])
    if len(found) > 1 and found[0].name.count(".") == found[1].name.count("."):
        raise DatasetError(
            f"{path}: {found[0].name} and {found[1].name} are of one sample, as its key ends at the first dot; rename "
            "them without dots before the ending, or remove one"
        )
    return found[0] if found else None


def _is_of_a_sample(member: tarfile.TarInfo) -> bool:
    """Return whether a member is a file with a key, which `.DS_Store` and macOS's `._00012.png` have not."""
    return member.isfile() and not PurePosixPath(member.name).name.startswith(".")


def _key(member: tarfile.TarInfo) -> str:
    """Return a name without any of its endings: `00012.seg.png` belongs to `00012`."""
    folder, _, name = member.name.rpartition("/")
    key = name.partition(".")[0]
    return f"{folder}/{key}" if folder else key


def _caption(archive: tarfile.TarFile, member: tarfile.TarInfo | None, where: str) -> str | None:
    if member is None:
        return None
    with damage_as(DatasetError, f"{where}: its caption cannot be read", "correct or remove it there"):
        content = _content(archive, member)
        if member.name.lower().endswith(".txt"):
            return content
        caption = parse_json(content, any_text=True, any_number=True).get("caption")
        return caption if isinstance(caption, str) else None


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    if member.size > _LONGEST_TEXT:
        raise ValueError(f"{member.size:,} bytes, at most {_LONGEST_TEXT:,} are read")
    file = archive.extractfile(member)
    assert file is not None
    # What is not UTF-8 is skipped with its reason later.
    return file.read().decode("utf-8-sig", errors="surrogateescape")

"""Building blocks of the configuration's schema: strict models, numbers, paths and durations."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator
from yaml.representer import SafeRepresenter

from pipelines.schema.error import ConfigError
from preprocessing.storage.address import is_s3, split_s3
from preprocessing.storage.mirror import Mirror
from preprocessing.storage.redaction import secrets_in

Number = TypeVar("Number", int, float)

_LARGEST, _LONGEST_NAME = 2**63, 255
DECIMAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_DURATION = re.compile(r"(\d+(?:\.\d+)?) (epoch|step)s?")


@dataclass(frozen=True)
class Duration:
    """A length of training, written "4 epochs" or "1132 steps".

    Steps compare between data sets of different size, epochs do not: 30,000 captions and 145,000 differ five times.
    """

    amount: float
    unit: Literal["epoch", "step"]

    @classmethod
    def parse(cls, text: object) -> Duration:
        """Read "4 epochs", "0.5 epochs" or "1132 steps"; ValueError for anything else."""
        if isinstance(text, Duration):
            return text
        match = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None or (match[2] == "step" and "." in match[1]):
            raise ValueError(f'is not a duration: write it as "4 epochs" or "1132 steps", got {text!r}')
        return cls(_bounded(float(match[1])), "epoch" if match[2] == "epoch" else "step")

    def steps(self, steps_per_epoch: int) -> int:
        """Return the length in optimiser steps, rounded to the nearest."""
        return round(self.amount * steps_per_epoch) if self.unit == "epoch" else int(self.amount)

    def __str__(self) -> str:
        return f"{self.amount:g} {self.unit}{'' if self.amount == 1 else 's'}"


class FileText(str):
    """A text of a configuration file; a relative path in it starts from the file's `folder`."""

    __slots__ = ("folder",)
    folder: Path

    def __new__(cls, text: str, folder: Path) -> Self:
        """Return a text with its folder."""
        self = super().__new__(cls, text)
        self.folder = folder
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Return what another process gets: the text alone."""
        return str, (str(self),)


yaml.SafeDumper.add_representer(FileText, SafeRepresenter.represent_str)


def in_its_folder(value: object) -> object:
    """Return a path, or the address of a database file, that starts from the folder of the file it was read from."""
    if not isinstance(value, FileText):
        return value
    scheme = "sqlite:///" if value.startswith("sqlite:///") else ""
    path = value.removeprefix(scheme)
    return value if "://" in path or path.startswith("~") else f"{scheme}{value.folder / path}"


def _folder_if_there(value: object) -> object:
    path = str(in_its_folder(value))
    is_path = str(value).startswith(("./", "../")) or os.path.exists(path)  # noqa: PTH110 (False for a name too long)
    return path if isinstance(value, FileText) and is_path else value


def absolute(path: Path) -> Path:
    """Make a path absolute; ValueError if no file can have it, or the user whose home it begins with does not exist."""
    if any(len(os.fsencode(name)) > _LONGEST_NAME for name in path.parts):
        raise ValueError(f"a name in {path!s:.60}... has more bytes than a file's may have, at most {_LONGEST_NAME}")
    try:
        # Not resolve(): a link that a user names is the name he knows it by.
        return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100
    except RuntimeError:
        raise ValueError(f"{path}: this machine has no user {path.parts[0][1:]!r}; write the path out") from None


def default_work_dir() -> Path:
    """Return the work directory of commands and configurations that name none."""
    return absolute(Path(os.environ.get("VSE_WORK_DIR") or "~/vse-work"))


def default_storage() -> str | None:
    """Return the storage of commands and configurations that name none; ConfigError if it cannot be a folder."""
    if not (named := os.environ.get("VSE_STORAGE")):
        return None
    try:
        address = local_or_s3(named)
    except ValueError as error:
        raise ConfigError(f"VSE_STORAGE {error}") from None
    if not is_s3(address) and Path(address).is_file():
        raise ConfigError(f"VSE_STORAGE {address} is a file: name a folder")
    return address


def default_mirror() -> Mirror:
    """Return the work directory of commands that have no configuration, with its storage; raises as that."""
    return Mirror(default_work_dir(), default_storage())


def without_secret(address: str) -> str:
    """Refuse an address with a password or a token in it."""
    if secrets_in(address):
        raise ValueError("holds a password or token: leave it out; S3 takes its credentials from the environment")
    return address


def local_or_s3(value: str) -> str:
    """Make a local path absolute; an address on S3 is checked for its form, others are refused."""
    without_secret(value)
    if not is_s3(value):
        if "://" in value:
            raise ValueError(f"is not an address: write the path of a folder, or s3://BUCKET/FOLDER, got {value!r}")
        return str(absolute(Path(value)))
    split_s3(value)
    return value.rstrip("/")


def folder_or_hub_name(value: str) -> str:
    """Make a local folder or file absolute; anything else stays as it is, a name on the hub."""
    path = absolute(Path(value))
    return str(path) if value.startswith(("/", "./", "../", "~")) or path.exists() else value


def _number(value: object) -> object:
    """Refuse `epochs: true` and `1_000`, which pydantic would read as 1 and 1000, and what only YAML 1.1 reads."""
    if isinstance(value, bool) or (isinstance(value, str) and not DECIMAL.fullmatch(value)):
        raise ValueError(f"must be a number, in decimal (12, 0.5, 1e-3), got {value!r:.60}")
    return value


def _bounded(value: Number) -> Number:
    """Refuse numbers that no machine has, and that become infinite or too large for their place in later arithmetic."""
    if not -_LARGEST <= value < _LARGEST:
        raise ValueError("must be a number below 2^63")
    return value


def _share_or_whole(value: float) -> float:
    """Refuse one and a half GPUs, which Ray cannot give to a process."""
    if value > 1 and value != int(value):
        raise ValueError(f"must be a share of a GPU, at most 1, or a whole number of GPUs; got {value:g}")
    return value


Int = Annotated[int, BeforeValidator(_number), AfterValidator(_bounded)]
Float = Annotated[float, BeforeValidator(_number), AfterValidator(_bounded)]
# Numbers of parameters, vectors or pixels; a typing error is told before it takes all memory.
Size = Annotated[Int, Field(gt=0, le=65_536)]
# Divisor of similarities: what lies outside makes all of them equal, or infinite in float32.
Temperature = Annotated[Float, Field(ge=1e-3, le=100)]
# The weight of a part of a loss.
Weight = Annotated[Float, Field(ge=0, le=1e3)]
# Ray's resources: hundredths of a core, and of a GPU either a share or a whole number.
Cpus = Annotated[Float, Field(ge=0.01)]
Gpus = Annotated[Float, Field(ge=0), AfterValidator(_share_or_whole)]
# Seconds, at most a day: the clocks of the libraries overflow long before 2^63.
Seconds = Annotated[Float, Field(gt=0, le=86_400)]
InItsFolder = BeforeValidator(in_its_folder)
AbsolutePath = Annotated[Path, AfterValidator(absolute), InItsFolder]
Address = Annotated[str, AfterValidator(local_or_s3), InItsFolder]
# A folder next to the file that names it, else a name on the hub.
FolderIfThere = BeforeValidator(_folder_if_there)
FolderOrHubName = Annotated[str, AfterValidator(folder_or_hub_name), FolderIfThere]
DurationField = Annotated[Duration, BeforeValidator(Duration.parse), PlainSerializer(str)]


class Strict(BaseModel):
    """Unknown keys are refused and nothing changes after loading."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    def _misfits(self) -> Iterator[str]:
        """Yield what does not fit together, each as `key: reason; remedy`; only the first is told."""
        yield from ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for misfit in self._misfits():
            raise ValueError(misfit)
        return self

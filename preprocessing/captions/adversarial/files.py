"""Files of adversarial captions: a JSON line for each true caption and attack."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from pydantic import ConfigDict, TypeAdapter

from preprocessing.reading import damage_as
from preprocessing.storage.atomic import open_atomic


class AdversarialError(ValueError):
    """A file of adversarial captions cannot be read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Adversarial:
    """The adversarial captions (`texts`) that an attack, such as "object", made of one caption.

    They follow the true `caption` in spelling, case and blanks, so that nothing but the changed words tells them apart;
    all are different, none is equal to a true caption of the image. `reason` says why there are fewer than were asked
    for; "" if there are not.
    """

    image_id: str
    caption_id: str
    attack: str
    caption: str
    texts: tuple[str, ...]
    reason: str = ""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")


_ENTRY = TypeAdapter(Adversarial)


class AttackReport(NamedTuple):
    """Numbers of true captions, those with all adversarial ones asked for, those without, and of adversarial ones."""

    captions: int = 0
    complete: int = 0
    impossible: int = 0
    adversarials: int = 0


def write_adversarials(path: Path, adversarials: Iterable[Adversarial]) -> AttackReport:
    """Write one JSON line for each; the file appears when all are written. Captions without any have their line too."""
    counts = Counter[str]()
    with open_atomic(path) as file:
        for entry in adversarials:
            file.write(json.dumps(asdict(entry), ensure_ascii=False).encode() + b"\n")
            texts = len(entry.texts)
            counts.update(captions=1, complete=not entry.reason, impossible=not texts, adversarials=texts)
    return AttackReport(**counts)


def read_adversarials(path: Path) -> list[Adversarial]:
    """Read what :func:`write_adversarials` has written; raise AdversarialError if the file is missing or damaged."""
    with damage_as(AdversarialError, f"cannot read the adversarial captions {path}", "generate them again"):
        *lines, rest = path.read_bytes().decode().split("\n")
    if rest:
        raise AdversarialError(f"{path} ends within a line: it was cut off; generate it again")
    entries = []
    for number, line in enumerate(lines, start=1):
        what = f"{path}, line {number} is not an adversarial caption"
        with damage_as(AdversarialError, what, "generate the file again"):
            entries.append(_ENTRY.validate_json(line))
    return entries

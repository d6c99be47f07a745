"""Captions with role graphs as HGR released them: words between spaces, of which actions and entities consist.

C captions of a split, B of a batch; L words, A actions and E entities at most.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.reading import damage_as, parse_json

ROLES = (
    *("V", "ARG1", "ARG0", "ARG2", "ARG3", "ARG4"),
    *("ARGM-LOC", "ARGM-MNR", "ARGM-TMP", "ARGM-DIR", "ARGM-ADV", "ARGM-PRP", "ARGM-PRD", "ARGM-COM", "ARGM-MOD"),
    "NOUN",
)
"""Roles of phrases in PropBank's words, in the order of the released code; the last stands for all others."""

_ACTION, _ROOT = "V", "ROOT"
# Words, actions and entities of a caption that are looked at, in the released code.
LONGEST, ACTIONS, ENTITIES = 30, 4, 6


class RoleGraphError(ValueError):
    """Role graphs are missing or malformed; the message says where, and where they come from."""


def spaced_words(text: str) -> list[str]:
    """Return the words of a caption, in lower case, as its role graph counts them."""
    return text.lower().split()


class SpacedWords:
    """Captions as words between spaces, the first thirty of them, without <start> and <end> (HGR's released code)."""

    FILE: ClassVar[str] = "spaced_words.json"

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.pad_id = vocabulary.pad_id

    @classmethod
    def build(cls, captions: Iterable[str], min_count: int) -> Self:
        """Collect the words of the training captions; see :meth:`Vocabulary.build`."""
        return cls(Vocabulary.build(captions, min_count, cut=spaced_words))

    def __len__(self) -> int:
        return len(self.vocabulary)

    def encode(self, text: str) -> list[int]:
        """Return word ids of a caption, <unk> for an unknown word; a caption without words is one <unk>."""
        return self.vocabulary.ids(spaced_words(text)[:LONGEST]) or [self.vocabulary.UNK]

    def truncates(self, text: str) -> bool:
        """Return whether a caption has more than thirty words."""
        return len(spaced_words(text)) > LONGEST

    def encode_words(self, text: str) -> tuple[list[int], list[int]]:
        """Return word ids as :meth:`encode` gives them, and their numbers."""
        ids = self.encode(text)
        return ids, list(range(len(ids)))

    def augment(self, ids_L: npt.NDArray[np.int32], *_: object, **__: object) -> npt.NDArray[np.int32]:
        """Raise a ValueError, as role graphs name words by their positions."""
        raise ValueError(f"captions with role graphs cannot be varied: {len(ids_L)} words are named by position")

    def save(self, path: Path) -> None:
        """Write the words as JSON in the format of the released vocabularies."""
        self.vocabulary.save(path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what :meth:`save` has written; raise VocabularyError if the file cannot be read."""
        return cls(Vocabulary.load(path))


def read_role_graphs(path: Path | str) -> dict[str, Any]:
    """Read `sent2rolegraph.augment.json`, caption -> [phrases by name, [action's name, entity's name, role] each link].

    The complete file is in memory: some GB for MSR-VTT's 200,000 captions. RoleGraphError: no such file, or not JSON;
    :meth:`RoleGraphTable.build` checks the graphs.
    """
    with damage_as(RoleGraphError, f"{path} is not a JSON file", _ORIGIN):
        content = parse_json(Path(path).read_bytes())
    if not isinstance(content, dict):
        raise RoleGraphError(f"{path}: the top level is a {type(content).__name__}, captions with graphs are needed")
    return content


@dataclass(frozen=True, slots=True)
class RoleGraphTable:
    """Role graphs of all captions of a split, some 300 bytes a caption.

    As in the released code a caption is cut at its spaces, and after `LONGEST` words; the first `ACTIONS` actions and
    `ENTITIES` entities that begin before that count. Tables of words tell which of them an action or entity consists
    of; `linked_CAE` whether an entity has a part in an action.
    """

    actions_CAL: npt.NDArray[np.bool_]
    entities_CEL: npt.NDArray[np.bool_]
    roles_CE: npt.NDArray[np.int64]
    linked_CAE: npt.NDArray[np.bool_]

    @classmethod
    def build(cls, captions: Iterable[str], graphs: Mapping[str, Any]) -> Self:
        """Look captions up in what :func:`read_role_graphs` returned.

        RoleGraphError: a caption has no graph, one that is malformed, or one that names words beyond the caption.
        """
        captions = list(captions)
        missing = [caption for caption in captions if caption not in graphs]
        if missing:
            what = f"{len(missing):,} of {len(captions):,} captions have no role graph, the first is {missing[0]!r:.80}"
            raise RoleGraphError(f"{what}; {_ORIGIN}")
        count = len(captions)
        table = cls(
            actions_CAL=np.zeros((count, ACTIONS, LONGEST), dtype=np.bool_),
            entities_CEL=np.zeros((count, ENTITIES, LONGEST), dtype=np.bool_),
            roles_CE=np.zeros((count, ENTITIES), dtype=np.int64),
            linked_CAE=np.zeros((count, ACTIONS, ENTITIES), dtype=np.bool_),
        )
        for row, caption in enumerate(captions):
            table._enter(row, caption, graphs[caption])
        return table

    def _enter(self, row: int, caption: str, graph: object) -> None:
        """Enter a caption's graph; links that name unknown phrases are left out, as in the released code."""
        where, count = f"caption {caption!r:.80}", len(spaced_words(caption))
        if not (isinstance(graph, list) and [type(part) for part in graph] == [dict, list]):
            raise RoleGraphError(f"{where}: {graph!r:.80} where [phrases by name, links] are needed; {_ORIGIN}")
        actions: dict[str, int] = {}
        entities: dict[str, int] = {}
        for name, node in graph[0].items():
            role, words = _role_and_words(node, f"{where}, phrase {name!r}")
            if role == _ROOT:
                continue
            if max(words) >= count:
                raise RoleGraphError(f"{where}: {count} words, cut at spaces, do not fit its role graph")
            rows, words_PL = (actions, self.actions_CAL[row]) if role == _ACTION else (entities, self.entities_CEL[row])
            if min(words) >= LONGEST or len(rows) == len(words_PL):
                continue
            if role != _ACTION:
                # Parts of a phrase that is told in pieces, and references to one, have its role.
                role = role.removeprefix("C-").removeprefix("R-")
                self.roles_CE[row, len(rows)] = ROLES.index(role if role in ROLES else "NOUN")
            words_PL[len(rows), [word for word in words if word < LONGEST]] = True
            rows[name] = len(rows)
        for link in graph[1]:
            if not isinstance(link, list) or len(link) < 2 or not all(isinstance(name, str) for name in link[:2]):
                raise RoleGraphError(f"{where}: {link!r:.80} where [action, entity, role] are needed; {_ORIGIN}")
            if link[0] in actions and link[1] in entities:
                self.linked_CAE[row, actions[link[0]], entities[link[1]]] = True

    def __len__(self) -> int:
        """Number of captions."""
        return len(self.roles_CE)

    def select(self, captions_B: npt.NDArray[np.integer], longest: int) -> dict[str, npt.NDArray[Any]]:
        """Return the graphs of some captions, by the names of the attributes; `longest` of them has L words."""
        return {
            "actions_CAL": self.actions_CAL[captions_B, :, :longest],
            "entities_CEL": self.entities_CEL[captions_B, :, :longest],
            "roles_CE": self.roles_CE[captions_B],
            "linked_CAE": self.linked_CAE[captions_B],
        }


def _role_and_words(node: object, where: str) -> tuple[str, list[int]]:
    fields: dict[str, Any] = node if isinstance(node, dict) else {}
    role, words = fields.get("role"), fields.get("spans")
    if isinstance(role, str) and isinstance(words, list) and {*map(type, words)} == {int} and min(words) >= 0:
        return role, words
    raise RoleGraphError(f"{where}: {node!r:.80} where a role and spans, positions of words, are needed; {_ORIGIN}")


_ORIGIN = (
    "HGR's release has them for its data sets, annotation/RET/sent2rolegraph.augment.json of "
    "https://github.com/cshizhe/hgr_v2t. For other captions they come of semantic role labelling (there AllenNLP's "
    "bert-base-srl-2019.06.17 and the notebook parse_sent_to_role_graph), for which no parser ships here"
)

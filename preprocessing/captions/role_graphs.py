"""Captions with role graphs as HGR released them: words between spaces, of which actions and entities consist.

C captions of a split, B of a batch; L words, A actions and E entities at most.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from preprocessing.captions.vocabulary import Vocabulary
from preprocessing.reading import damage_as, parse_json
from preprocessing.shards.split_index import map_fields, save_fields

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


class Phrase(NamedTuple):
    """One action or one entity: its role's index in `ROLES`, and its words' positions in the caption cut at spaces."""

    role: int
    words: tuple[int, ...]


class RoleGraph(NamedTuple):
    """One caption: actions and entities in the order of the file; `links`, the indices of an action and its entity."""

    actions: tuple[Phrase, ...]
    entities: tuple[Phrase, ...]
    links: tuple[tuple[int, int], ...]


def read_role_graphs(path: Path | str) -> dict[str, RoleGraph]:
    """Read `sent2rolegraph.augment.json`, caption -> [phrases by name, [action's name, entity's name, role] each link].

    The complete file is in memory while it is read: some GB for MSR-VTT's 200,000 captions. RoleGraphError: no such
    file, not JSON, or a caption whose graph is malformed.
    """
    with damage_as(RoleGraphError, f"{path} is not a JSON file", _ORIGIN):
        content = parse_json(Path(path).read_bytes())
    if not isinstance(content, dict):
        raise RoleGraphError(f"{path}: the top level is a {type(content).__name__}, captions with graphs are needed")
    return {caption: _graph(value, f"{path}, caption {caption!r:.80}") for caption, value in content.items()}


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
    def build(cls, captions: Iterable[str], graphs: Mapping[str, RoleGraph]) -> Self:
        """Look the graphs of captions up; raise RoleGraphError if one is missing, or names words beyond the caption."""
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
            graph, words = graphs[caption], len(spaced_words(caption))
            if any(max(phrase.words) >= words for phrase in (*graph.actions, *graph.entities)):
                raise RoleGraphError(
                    f"caption {caption!r:.80}: {words} words, cut at spaces, do not fit its role graph"
                )
            actions = _set_words(graph.actions, table.actions_CAL[row])
            entities = _set_words(graph.entities, table.entities_CEL[row])
            for number, index in entities.items():
                table.roles_CE[row, index] = graph.entities[number].role
            for action, entity in graph.links:
                if action in actions and entity in entities:
                    table.linked_CAE[row, actions[action], entities[entity]] = True
        return table

    def save(self, directory: Path) -> None:
        """Write the arrays into a directory."""
        save_fields(self, directory)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Map the arrays that :meth:`save` has written; raise ShardError if they are damaged."""
        return cls(**map_fields(cls, directory))

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


def _set_words(phrases: tuple[Phrase, ...], words_PL: npt.NDArray[np.bool_]) -> dict[int, int]:
    """Mark the words of the phrases that count; return the row of each of these, by its number."""
    begun = [number for number, phrase in enumerate(phrases) if min(phrase.words) < LONGEST][: len(words_PL)]
    for row, number in enumerate(begun):
        words_PL[row, [word for word in phrases[number].words if word < LONGEST]] = True
    return {number: row for row, number in enumerate(begun)}


def _graph(value: object, where: str) -> RoleGraph:
    """Read a graph of the file; links that name unknown phrases are left out, as in the released code."""
    if not (isinstance(value, list) and [type(part) for part in value] == [dict, list]):
        raise RoleGraphError(f"{where}: {value!r:.80} where [phrases by name, links] are needed")
    actions: dict[str, Phrase] = {}
    entities: dict[str, Phrase] = {}
    for name, node in value[0].items():
        role, words = _role_and_words(node, f"{where}, phrase {name!r}")
        if role == _ACTION:
            actions[name] = Phrase(0, words)
        elif role != _ROOT:
            # Parts of a phrase that is told in pieces, and references to one, have its role.
            role = role.removeprefix("C-").removeprefix("R-")
            entities[name] = Phrase(ROLES.index(role) if role in ROLES else len(ROLES) - 1, words)
    links = []
    for link in value[1]:
        if not isinstance(link, list) or len(link) < 2 or not all(isinstance(name, str) for name in link[:2]):
            raise RoleGraphError(f"{where}: {link!r:.80} where [action, entity, role] are needed")
        if link[0] in actions and link[1] in entities:
            links.append((list(actions).index(link[0]), list(entities).index(link[1])))
    return RoleGraph(tuple(actions.values()), tuple(entities.values()), tuple(links))


def _role_and_words(node: object, where: str) -> tuple[str, tuple[int, ...]]:
    fields: dict[str, Any] = node if isinstance(node, dict) else {}
    role, words = fields.get("role"), fields.get("spans")
    if not (isinstance(role, str) and isinstance(words, list) and words and all(map(_is_position, words))):
        raise RoleGraphError(f"{where}: {node!r:.80} where a role and spans, positions of words, are needed")
    return role, tuple(words)


def _is_position(word: object) -> bool:
    return type(word) is int and word >= 0


_ORIGIN = (
    "HGR's release has them for its data sets, annotation/RET/sent2rolegraph.augment.json of "
    "https://github.com/cshizhe/hgr_v2t. For other captions they come of semantic role labelling (there AllenNLP's "
    "bert-base-srl-2019.06.17 and the notebook parse_sent_to_role_graph), for which no parser ships here"
)

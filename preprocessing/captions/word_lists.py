"""Lists of words in YAML files: a name, and words or phrases with commas between, or one a line."""

from pathlib import Path

import yaml


def read_word_lists(path: Path) -> dict[str, list[str]]:
    """Return the lists of a file by their names."""
    lists: dict[str, str | list[str]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {
        name: entries if isinstance(entries, list) else [entry.strip() for entry in entries.split(",")]
        for name, entries in lists.items()
    }


WORD_LISTS = read_word_lists(Path(__file__).with_suffix(".yaml"))
"""Words of the negatives and the adversarial captions."""

_KINDS = ("colours", "sizes", "materials", "ages")


def kind_of_adjective(adjective: str) -> str:
    """Return the list of adjectives of which one is true of a thing, "" for an adjective in none of them."""
    return next((kind for kind in _KINDS if adjective in WORD_LISTS[kind]), "")

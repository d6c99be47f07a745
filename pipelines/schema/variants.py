"""Sections of a configuration that come in variants; plugins add theirs."""

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import PydanticKnownError, core_schema

from pipelines.schema.fields import Strict


class Named(Strict):
    """Settings of a plugin's protocol or stage; its own class has a literal for the name."""

    name: str


FAMILIES: dict[str, "Variants"] = {}
"""Those that plugins may add to, by the family of parts that they set up."""


class Variants:
    """The settings classes of a section by the value of the key that chooses one.

    `Annotated[A | B, Variants("name")]` is a field that holds an A or a B, whichever has the mapping's `name` as its
    literal, or a class that was added. `family` is the name in `FAMILIES`.
    """

    def __init__(self, key: str, family: str | None = None) -> None:
        if family is not None:
            FAMILIES[family] = self
        self.key = key
        self.classes: dict[str, type[BaseModel]] = {}

    def names(self, settings: type[BaseModel]) -> tuple[str, ...]:
        """Return the values of the key that choose a settings class."""
        return get_args(settings.model_fields[self.key].annotation)

    def add(self, settings: type[BaseModel]) -> None:
        """Add a settings class under its names."""
        self.classes |= dict.fromkeys(self.names(settings), settings)

    def validate(self, value: Any) -> BaseModel:
        """Return the settings in a mapping; raises ValueError if it does not choose one of the classes, or misfits."""
        if isinstance(value, BaseModel) and type(value) in self.classes.values():
            return value
        if not isinstance(value, Mapping) or self.key not in value:
            raise PydanticKnownError("union_tag_not_found", {"discriminator": repr(self.key)})
        name = value[self.key]
        if not isinstance(name, str) or name not in self.classes:
            known = ", ".join(map(repr, self.classes))
            context = {"discriminator": repr(self.key), "tag": str(name), "expected_tags": known}
            raise PydanticKnownError("union_tag_invalid", context)
        return self.classes[name].model_validate(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Take the classes of the annotated union, and validate by them."""
        for settings in get_args(source):
            self.add(settings)
        return core_schema.no_info_before_validator_function(self.validate, core_schema.any_schema())

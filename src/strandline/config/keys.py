"""The sections and keys that a configuration may have, as the shipped JSON schema declares them.

Invariants: `schema.json` is the one list of keys at run time; a test derives it again from the options of the commands.
The section `""` has the keys that several commands share; they stand at the top of the file.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import resources
from typing import Any

SHARED = ""
"""The section of keys at the top of the file, which hold for every command that has them."""
ENVIRONMENT, PATH, SECRET = "x-environment", "x-path", "x-secret"
"""What the schema says beyond JSON schema: names of variables, what stands before a path, and that it is a secret."""


class Kind(Enum):
    """The type of a value."""

    TEXT = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"

    @property
    def expected(self) -> str:
        """Say what a value has to be."""
        return {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}[
            self.value
        ]


@dataclass(frozen=True)
class Key:
    """A key of a section: its type, what it may be, and the variables that give it too, the first before others."""

    section: str
    name: str
    kind: Kind
    help: str = ""
    is_list: bool = False
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    default: object = None
    environment: tuple[str, ...] = ()
    path_after: str | None = None
    """What stands before a path that is relative to the file: nothing, or `parquet:`; None if it is no path."""
    is_secret: bool = False

    @property
    def label(self) -> str:
        """Return the key as it is shown: `scan.paths`."""
        return f"{self.section}.{self.name}" if self.section else self.name


Declared = Mapping[str, Mapping[str, Key]]
"""Keys by section and name."""


def schema_text() -> str:
    """Return the JSON schema that is shipped."""
    return resources.files("strandline.config").joinpath("schema.json").read_text(encoding="utf-8")


@cache
def declared() -> Declared:
    """Return all keys, by section and name."""
    return parse_schema(json.loads(schema_text()))


def format_schema(sections: Declared) -> str:
    """Return the JSON schema of sections."""
    tables = {
        name: {
            "type": "object",
            "description": f"Options of `strandline {name}`.",
            "properties": {key.name: _format_key(key) for key in keys.values()},
            "additionalProperties": False,
        }
        for name, keys in sections.items()
        if name != SHARED
    }
    text = {"type": "string", "minLength": 1}
    references = [
        {"type": "object", "properties": {name: text}, "required": [name], "additionalProperties": False}
        for name in ("env", "file")
    ]
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "strandline.toml",
        "type": "object",
        "properties": {key.name: _format_key(key) for key in sections[SHARED].values()} | tables,
        "additionalProperties": False,
        "$defs": {"text": {"anyOf": [{"type": "string"}, *references]}},
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def parse_schema(schema: Mapping[str, Any]) -> Declared:
    """Return the keys of a JSON schema that `format_schema` wrote."""
    tables = {name: found for name, found in schema["properties"].items() if found.get("type") == "object"}
    top = {name: found for name, found in schema["properties"].items() if name not in tables}
    sections: dict[str, Mapping[str, Any]] = {SHARED: top} | {name: t["properties"] for name, t in tables.items()}
    return {
        section: {name: _parse_key(section, name, found) for name, found in properties.items()}
        for section, properties in sections.items()
    }


def _format_key(key: Key) -> dict[str, Any]:
    value: dict[str, Any] = {"$ref": "#/$defs/text"} if key.kind is Kind.TEXT else {"type": key.kind.value}
    if key.choices:
        value = {"enum": list(key.choices)}
    if key.minimum is not None:
        value["minimum"] = key.minimum
    found: dict[str, Any] = {"description": key.help} | ({"type": "array", "items": value} if key.is_list else value)
    if key.default not in (None, []):
        found["default"] = key.default
    found[ENVIRONMENT] = list(key.environment)
    if key.path_after is not None:
        found[PATH] = key.path_after
    if key.is_secret:
        found[SECRET] = True
    return found


def _parse_key(section: str, name: str, found: Mapping[str, Any]) -> Key:
    is_list = found.get("type") == "array"
    value = found["items"] if is_list else found
    return Key(
        section=section,
        name=name,
        kind=Kind.TEXT if "$ref" in value or "enum" in value else Kind(value["type"]),
        help=found["description"],
        is_list=is_list,
        choices=tuple(value.get("enum", ())),
        minimum=value.get("minimum"),
        default=found.get("default"),
        environment=tuple(found[ENVIRONMENT]),
        path_after=found.get(PATH),
        is_secret=found.get(SECRET, False),
    )

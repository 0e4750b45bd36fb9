"""Write the JSON schema of `strandline.toml` out of the options of the commands: `python -m tools.config_schema`.

A key is derived from an option: its name, type, choices, lower bound, default, help and variables. What every key is
declared by is thus the command itself; `tests/config/test_schema.py` compares what is shipped.
"""

import inspect
import re
import types
import typing
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from strandline.broker.settings.flags import FLAGS, Flag
from strandline.cli import app as root
from strandline.cli.configuration import key_of
from strandline.cli.lazy_commands import LazyCommand, load
from strandline.config.keys import SHARED, Declared, Key, Kind, format_schema
from strandline.config.settings import environment_name

SCHEMA = Path(__file__).resolve().parent.parent / "src" / "strandline" / "config" / "schema.json"
_KINDS = {str: Kind.TEXT, Path: Kind.TEXT, int: Kind.INTEGER, float: Kind.NUMBER, bool: Kind.BOOLEAN}
_PATH = re.compile(r"^(?:\[?)(.*?)(?:DIR|FILE|PATH)(?![=A-Z])")
_SERVED_ONCE = {"t", "signal", "help", "version", "DVV"}
_PATHS = {("pipeline", "address")}
_SECRETS = {"pass", "auth", "webhook-secret"}


def derived() -> Declared:
    """Return every key of every command."""
    sections: dict[str, dict[str, Key]] = {SHARED: {}}
    for section, function, command in commands(root.COMMANDS):
        hints = typing.get_type_hints(function, include_extras=False)
        for param in command.params:
            name = key_of(section, command.name, param)
            if name is not None:
                found = _key(section, name, param, hints[param.name])
                known = sections.setdefault(section, {}).setdefault(name, found)
                if (known.kind, known.is_list, known.choices) != (found.kind, found.is_list, found.choices):
                    raise TypeError(f"[{section}] {name} is of different types in commands of one group")
    sections["serve"] = {key.name: key for flag in FLAGS if (key := _flag(flag)) is not None}
    sections[SHARED] = dict(_shared(sections))
    return sections


def commands(entries: tuple[LazyCommand, ...], section: str | None = None) -> Iterator[tuple[str, Any, Any]]:
    """Yield each command's section, its function, and the command as typer runs it."""
    for entry in entries:
        module, _, name = entry.place.partition(":")
        home = __import__(f"strandline.cli.{module}", fromlist=[name])
        found = getattr(home, name)
        if isinstance(found, typer.Typer):
            yield from commands(home.COMMANDS, entry.name)
        elif inspect.isfunction(found):
            yield section or entry.name, found, load(entry)


def _key(section: str, name: str, param: Any, hint: Any) -> Key:  # noqa: ANN401 - typer's copy of click is private
    annotation = _without_none(hint)
    is_list = typing.get_origin(annotation) is list
    value = typing.get_args(annotation)[0] if is_list else annotation
    choices = tuple(str(each.value) for each in value) if issubclass(value, Enum) else ()
    declared = [param.envvar] if isinstance(param.envvar, str) else list(param.envvar or ())
    path = _PATH.match(param.metavar or "")
    return Key(
        section=section,
        name=name,
        kind=Kind.TEXT if choices else _KINDS[value],
        help=(param.help or "").rstrip("."),
        is_list=is_list,
        choices=choices,
        minimum=param.min,
        default=_plain(param.default),
        environment=(environment_name(section, name), *declared),
        path_after=path[1] if path else "" if value is Path or (section, name) in _PATHS else None,
        is_secret=name in _SECRETS,
    )


def _flag(flag: Flag) -> Key | None:
    """Return the key of a flag of the server; None for one that asks for something else than a server."""
    name = flag.names[1] if len(flag.names) > 1 and len(flag.names[0]) <= len("js") else flag.names[0]
    if name in _SERVED_ONCE:
        return None
    number = flag.value in ("<port>", "<limit>", "<len>")
    return Key(
        section="serve",
        name=name,
        kind=Kind.BOOLEAN if not flag.value else Kind.INTEGER if number else Kind.TEXT,
        help=flag.help,
        environment=(environment_name("serve", name),),
        path_after="" if flag.value in ("<file>", "<dir>") else None,
        is_secret=name in _SECRETS,
    )


def _shared(sections: dict[str, dict[str, Key]]) -> Iterator[tuple[str, Key]]:
    """Yield the keys that mean the same in several sections: they may stand at the top of the file."""
    found: dict[str, list[Key]] = {}
    for section, keys in sections.items():
        for key in keys.values():
            if section != "serve":
                found.setdefault(key.name, []).append(key)
    for name, same in found.items():
        first = same[0]
        variables = set.intersection(*(set(key.environment) for key in same))
        if name in sections:
            continue  # a section of that name stands at the top
        if len(same) > 1 and len({(key.kind, key.is_list, key.choices, key.path_after) for key in same}) == 1:
            yield (
                name,
                Key(
                    section=SHARED,
                    name=name,
                    kind=first.kind,
                    help=first.help,
                    is_list=first.is_list,
                    choices=first.choices,
                    minimum=first.minimum,
                    environment=tuple(sorted(variables)),
                    path_after=first.path_after,
                ),
            )


def _without_none(hint: Any) -> Any:  # noqa: ANN401 - a type
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        [hint] = [each for each in typing.get_args(hint) if each is not type(None)]
    return hint


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value


if __name__ == "__main__":
    SCHEMA.write_text(format_schema(derived()), encoding="utf-8")

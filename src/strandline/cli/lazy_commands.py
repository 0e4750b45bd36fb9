"""Commands that are imported when they run, so that each loads only what it needs and `--help` loads nearly nothing.

Invariants: a group knows its commands by name, place and one line of help, and imports none of them to list them; the
line is the first of the command's own docstring, which a test compares. Hooks of `after_import` run after the import of
a command and before the command. A place may also hold a command that typer has built already.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from strandline.cli.configuration import configure, with_values
from strandline.cli.plain_values import take_plain_values

_after_import: list[Callable[[], None]] = []


class LazyCommand(NamedTuple):
    """A command or a group: `place` is `module:name` below this package, of a function or of a `typer.Typer`."""

    name: str
    place: str
    help: str


def after_import(hook: Callable[[], None]) -> None:
    """Call `hook` after the import of each command; groups do not count."""
    _after_import.append(hook)


def lazy_group(*entries: LazyCommand) -> type[TyperGroup]:
    """Return the class of a group that has these commands, in this order."""

    class LazyGroup(TyperGroup):
        def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - typer's own
            super().__init__(**attributes)
            self.commands = {**{entry.name: _Unloaded(entry) for entry in entries}, **self.commands}

        def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401 - typer's copy of click is private
            params = super().get_params(ctx)
            take_plain_values(params)
            return params

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer's copy of click is private
            name, command, rest = super().resolve_command(ctx, args)
            rest = with_values(name or "", rest)
            if isinstance(command, _Unloaded):
                command = command.load()
            if name is not None and isinstance(command, TyperCommand):
                take_plain_values(command.get_params(ctx))
                configure(ctx, name, command, rest)
            return name, command, rest

    return LazyGroup


class _Unloaded(TyperCommand):
    """The entry of a command in a list of commands, before its import."""

    def __init__(self, entry: LazyCommand) -> None:
        super().__init__(entry.name, help=entry.help)
        self._entry = entry

    def load(self) -> Any:  # noqa: ANN401 - typer's copy of click is private
        """Import the command, and return it."""
        return load(self._entry)


def load(entry: LazyCommand) -> Any:  # noqa: ANN401 - typer's copy of click is private
    """Import a command or a group, and return it as typer runs it."""
    module, _, name = entry.place.partition(":")
    found: Callable[..., None] | typer.Typer | TyperCommand = getattr(import_module(f"strandline.cli.{module}"), name)
    if isinstance(found, typer.Typer):
        group = get_group(found)
        group.name = entry.name
        return group
    for hook in _after_import:
        hook()
    if isinstance(found, TyperCommand):
        return found
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(entry.name)(found)
    return get_command(alone)

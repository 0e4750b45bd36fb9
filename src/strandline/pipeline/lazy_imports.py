"""Drivers of servers, imported at their first use: most commands never talk to one.

Beside `deferred` stands the plain import for the type checker, under `TYPE_CHECKING`.
"""

from contextlib import nullcontext
from importlib import import_module

from strandline.extras import Extra, needs


class deferred:  # noqa: N801 - it stands for a module, and reads like one
    """A module that is imported when something is first taken from it; of an `extra`, if it is not always there."""

    def __init__(self, name: str, extra: Extra | None = None) -> None:
        self._name = name
        self._extra = extra

    def __getattr__(self, name: str) -> object:
        with nullcontext() if self._extra is None else needs(self._extra):
            value: object = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value

"""Modules of others that are imported when they are first used: drivers of servers, which most commands never talk to.

Beside `deferred` stands the plain import for the type checker, under `TYPE_CHECKING`.
"""

from importlib import import_module


class deferred:  # noqa: N801 - it stands for a module, and reads like one
    """A module that is imported when something is first taken from it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        value: object = getattr(import_module(self._name), name)
        setattr(self, name, value)
        return value

"""Mutations of production code: a function with one piece of its text replaced."""

import inspect
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest


def mutate(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, old: str, new: str) -> None:
    """Put a function in the place of one of a module or class, with `old` replaced by `new` in its text."""
    function: Callable[..., Any] = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{old!r} is {source.count(old)} times in {name}: the mutation does not fit the code"
    made: dict[str, Any] = {}
    code = compile(source.replace(old, new), f"<{name} without {old}>", "exec")
    exec(code, vars(sys.modules[function.__module__]), made)  # noqa: S102 - the text is the function's own
    monkeypatch.setattr(owner, name, made[name])

"""What of an engine is kept for another process, so that it neither compiles nor judges the rules again.

Invariants: what is kept was made from rules that were checked in full; it names the policy and the code that it was
made by, and an engine of other rules, other limits or other code takes nothing of it.
"""

import sys
from functools import cache
from importlib import resources
from typing import NamedTuple

from strandline.pipeline.identity import PolicyHash
from strandline.protocol.canonical import canonical_value, derive
from strandline.version import __version__

_MAKERS = ("expressions", "matching")
"""The folders whose code decides what is kept."""


class Reach(NamedTuple):
    """The rules that an expression of the database stands for, and how far around a hit their matches may reach."""

    rules: tuple[int, ...]
    before: int
    after: int


class Layout(NamedTuple):
    """What the answers of a database mean, expression by expression, and what the rules cost.

    Rules in `whole` are matched everywhere; those in `worded` have no expression of their own in the database.
    """

    reaches: tuple[Reach, ...]
    whole: tuple[int, ...]
    worded: frozenset[int]
    notes: tuple[str, ...]


class Saved(NamedTuple):
    """A compiled database with what is known of its rules, for another process on such a machine."""

    maker: bytes
    database: bytes
    layout: Layout
    slow_rules: tuple[str, ...]


def maker_of(policy: PolicyHash) -> bytes:
    """Return the name of all that decides what is kept: rules, limits, our code and Python."""
    return derive("strandline/engine-maker/v1", policy + _code_digest())


@cache
def _code_digest() -> bytes:
    folders = [resources.files("strandline.detect") / name for name in _MAKERS]
    files = sorted((file for folder in folders for file in folder.iterdir()), key=lambda file: file.name)
    code = [file.read_bytes() for file in files if file.name.endswith(".py")]
    return derive("strandline/engine-code/v1", canonical_value([__version__, sys.version, *code]))

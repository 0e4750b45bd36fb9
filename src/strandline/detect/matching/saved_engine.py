"""The compiled form of an engine, which spares another process compiling and checking the rules.

Invariants: a saved engine comes from rules that were checked in full; it names the policy and the code that made it,
and an engine of other rules, limits or code ignores it.
"""

import sys
from functools import cache
from importlib import resources
from typing import NamedTuple

from strandline.pipeline.identity import PolicyHash
from strandline.protocol.canonical import canonical_value, derive
from strandline.version import __version__

_MAKERS = ("expressions", "matching", "views")
"""Folders whose code decides the compiled form."""


class Reach(NamedTuple):
    """The rules of an expression of the database, and the distance that their matches may extend around a hit."""

    rules: tuple[int, ...]
    before: int
    after: int


class Layout(NamedTuple):
    """The meaning of a database's expressions, in their order, and notes on slow rules.

    Rules in `whole` are matched everywhere; those in `worded` have no expression of their own in the database.
    """

    reaches: tuple[Reach, ...]
    whole: tuple[int, ...]
    worded: frozenset[int]
    notes: tuple[str, ...]


class SavedEngine(NamedTuple):
    """A compiled database with its layout and slow rules, for another process on the same kind of machine.

    `paths` is the database of the paths of rules for named files, empty if there is none; `checks` has the databases of
    single rules by their numbers, empty for a rule that hyperscan refuses; `fixed` has those that no rule decides.
    """

    maker: bytes
    database: bytes
    layout: Layout
    slow_rules: tuple[str, ...]
    paths: bytes = b""
    checks: tuple[tuple[int, bytes], ...] = ()
    fixed: tuple[tuple[str, bytes], ...] = ()


def maker_of(policy: PolicyHash) -> bytes:
    """Return the digest of everything that decides the compiled form: rules, limits, code and Python."""
    return derive("strandline/engine-maker/v1", policy + _code_digest())


@cache
def _code_digest() -> bytes:
    folders = [resources.files("strandline.detect") / name for name in _MAKERS]
    files = sorted((file for folder in folders for file in folder.iterdir()), key=lambda file: file.name)
    code = [file.read_bytes() for file in files if file.name.endswith(".py")]
    return derive("strandline/engine-code/v1", canonical_value([__version__, sys.version, *code]))

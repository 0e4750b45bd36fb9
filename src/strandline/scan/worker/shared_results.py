"""Results of a blob for all of its paths: its bytes are scanned once for each set of rules that paths choose.

A listing has the paths of one blob together, and their reader returns the same bytes for them. Paths are of one class
if the same expressions for paths, of rules and of allowlists, match them: then the same bytes have the same findings.

Invariants: a shared result is, but for the path, what a scan under that path would have found. An item with members is
not shared between paths if rules look at paths: the members' names begin with them.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from strandline.detect import Engine, Found, ItemResult, Limits, RuleSet
from strandline.detect.expressions.linear import Work
from strandline.detect.expressions.patterns import Pattern
from strandline.detect.matching.allowlists import path_pattern
from strandline.detect.matching.prefilter import Matches
from strandline.detect.rules.rule import Allowlist
from strandline.scan.sources import Part

_REPORTED = ".secrets.baseline"


class PathClasses:
    """Classes of paths under a set of rules."""

    def __init__(self, rules: RuleSet, limits: Limits) -> None:
        self._rules = rules
        self._steps_max = limits.slow_steps_max
        self.looks_at_paths = rules.looks_at_paths

    @cached_property
    def looks_at_commits(self) -> bool:
        """Return whether an allowlist names commits."""
        return any(one.commits for one in self._allowlists)

    def are_same(self, one: Part, other: Part) -> bool:
        """Return whether the same bytes have the same findings in two parts."""
        if self.looks_at_commits and one.commit != other.commit:
            return False
        return one.path == other.path or self._class(one.path) == self._class(other.path)

    def _class(self, path: str) -> tuple[bool, ...]:
        text, work = path.encode(errors="surrogateescape"), Work(self._steps_max)
        matched = (pattern.is_in(text, work) for pattern in self._patterns)
        return (path.rpartition("/")[2] == _REPORTED, *matched)

    @cached_property
    def _patterns(self) -> list[Pattern]:
        of_lists = (path for one in self._allowlists for path in one.paths)
        of_rules = (rule.path for rule in self._rules.rules if rule.path is not None)
        return [path_pattern("a path", path) for path in dict.fromkeys((*of_rules, *of_lists))]

    @property
    def _allowlists(self) -> list[Allowlist]:
        return [*self._rules.allowlists, *(one for rule in self._rules.rules for one in rule.allowlists)]


class _Known(NamedTuple):
    part: Part
    result: ItemResult


class SharedResults:
    """The results of the last blob, for its next paths."""

    def __init__(self, classes: PathClasses) -> None:
        self._classes = classes
        self._known: list[_Known] = []
        self._clear: list[Part] = []
        self._matches: dict[int, tuple[bytes, Matches]] = {}
        """What was matched in bytes that are to be scanned, by their identity, which lasts as long as they are here."""

    def scan(self, engine: Engine, part: Part) -> ItemResult:
        """Return the result of a part: known from the same bytes under another path, or scanned."""
        self._known = [known for known in self._known if known.part.data is part.data]
        for known in self._known:
            if self._classes.are_same(known.part, part):
                return _moved(known, part.path)
        _, matches = self._matches.pop(id(part.data), (b"", None))
        result = engine.scan(part.data, part.path, part.commit, matches=matches)
        has_members = result.coverage.bytes_seen != len(part.data) or result.coverage.members_skipped
        if not (has_members and self._classes.looks_at_paths):
            self._known.append(_Known(part, result))
        return result

    def clear(self, engine: Engine, parts: Sequence[Part]) -> list[bool]:
        """Return which parts hold no secret, by one pass over the bytes of all of them."""
        first = [part for before, part in zip([None, *parts], parts, strict=False) if not _shares(before, part)]
        first = first[1:] if first and self._clear and first[0].data is self._clear[0].data else first
        named = engine.suspects([part.data for part in first], [part.path for part in first]) if first else {}
        of_large = ((first[number].data, matches) for number, matches in named.items() if matches is not None)
        self._matches = {id(data): (data, matches) for data, matches in of_large}
        found = {id(part): number not in named for number, part in enumerate(first)}
        cleared = []
        for part in parts:
            self._clear = [one for one in self._clear if _shares(one, part)]
            is_clear = found.get(id(part), False) or any(self._classes.are_same(one, part) for one in self._clear)
            if id(part) in found and is_clear:
                self._clear = [part]
            cleared.append(is_clear)
        return cleared


def _shares(before: Part | None, part: Part) -> bool:
    """Return whether two parts are of one blob; Python has one object for all empty values, and for each byte alone."""
    return before is not None and before.data is part.data and len(part.data) > 1


def _moved(known: _Known, path: str) -> ItemResult:
    """Return a result under another path."""
    at = len(known.part.path)
    return ItemResult(tuple(_under(one, path + one.path[at:]) for one in known.result.findings), known.result.coverage)


def _under(found: Found, path: str) -> Found:
    return replace(found, path=path)

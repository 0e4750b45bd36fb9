r"""CODEOWNERS: who owns a path of a repository, as GitHub and GitLab read the file.

    .github/CODEOWNERS, CODEOWNERS, docs/CODEOWNERS    GitHub's places, in GitHub's order
    .gitlab/CODEOWNERS                                 GitLab's own; its two others are the same

    *.js  @js-owner #inline comment      the last pattern that matches decides; no owner after it: none
    apps/                                a name alone, at any depth; with a slash within, from the root
    /docs/*                              files of that folder, not of those below it
    **/logs                              any folders
    path\ with\ spaces/ @team            an escaped space

A file is GitLab's by its place, or by a section in it. There the last pattern of each section decides, and the owners
of all sections count; `[Section] @team` gives owners to entries without any; `!pattern` takes paths out of its section;
a path that does not begin with a slash is at any depth.

Invariants: pure; an invalid line is left out, as both hosts do; comments are not kept; a pattern is matched in time
linear in the path.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from strandline.scan.path_globs import clean_path

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS")
BYTES_MAX = 3_000_000
"""The size that GitHub reads; a larger file counts as none."""
_SECTION = re.compile(r"(?P<optional>\^)?\[(?P<name>[^\]]+)\](?:\[\d*\])?(?P<owners>(?:\s.*)?)")
_WORDS = re.compile(r"(?:\\.|[^\s\\]|\\(?=\s*$))+")
_OWNER = re.compile(r"@{1,2}[\w][\w.\-]*(?:/[\w.\-]+)*|[^\s@#]+@[^\s@]+\.[^\s@]+")
_TOKEN = re.compile(r"\\(?P<escaped>.)|(?P<stars>\*+)|(?P<any>\?)|(?P<plain>.)", re.DOTALL)


class Dialect(StrEnum):
    """Whose rules a file follows."""

    GITHUB = "github"
    GITLAB = "gitlab"


@dataclass(frozen=True)
class OwnerRule:
    """A pattern, its owners and its section; one that `excludes` takes its paths out of the section."""

    pattern: str
    owners: tuple[str, ...]
    section: str = ""
    excludes: bool = False


@dataclass(frozen=True)
class CodeOwners:
    """The rules of a file, in their order."""

    dialect: Dialect = Dialect.GITHUB
    rules: tuple[OwnerRule, ...] = field(default=(), repr=False)

    def of(self, path: str) -> tuple[str, ...]:
        """Return the owners of a path, in the order of sections; empty if it has none."""
        clean = clean_path(path)
        owners: dict[str, tuple[str, ...]] = {}
        left_out: set[str] = set()
        for rule, expression in self._compiled:  # a match makes up for the pattern before it, so the last one stands
            if expression.fullmatch(clean):
                owners[rule.section] = rule.owners
                left_out |= {rule.section} if rule.excludes else set()
        found = [owner for section, some in owners.items() if section not in left_out for owner in some]
        return tuple(dict.fromkeys(found))

    @cached_property
    def _compiled(self) -> Sequence[tuple[OwnerRule, re.Pattern[str]]]:
        return [(rule, re.compile(_expression(rule.pattern, self.dialect), re.DOTALL)) for rule in self.rules]


def parse_codeowners(text: str, place: str = "") -> CodeOwners:
    """Return the rules of a file at a place."""
    lines = [line.strip() for line in text.splitlines()]
    is_gitlab = place.startswith(".gitlab/") or any(map(_heading, lines))
    dialect = Dialect.GITLAB if is_gitlab else Dialect.GITHUB
    return CodeOwners(dialect, tuple(_gitlab_rules(lines) if is_gitlab else _github_rules(lines)))


def format_rules(owners: CodeOwners) -> bytes:
    """Return the rules as they are stored: JSON, without comments."""
    rules = [[rule.pattern, list(rule.owners), rule.section, rule.excludes] for rule in owners.rules]
    return json.dumps({"dialect": owners.dialect.value, "rules": rules}).encode()


def parse_rules(data: bytes) -> CodeOwners:
    """Return the stored rules."""
    stored = json.loads(data)
    rules = (OwnerRule(pattern, tuple(some), section, out) for pattern, some, section, out in stored["rules"])
    return CodeOwners(Dialect(stored["dialect"]), tuple(rules))


def _github_rules(lines: Sequence[str]) -> Iterator[OwnerRule]:
    for line in lines:
        pattern, *words = _words(line) or [""]
        comment = next((at for at, word in enumerate(words) if word.startswith("#")), len(words))
        owners = words[:comment]
        # GitHub has no negation, no classes of characters, and no escape for a number sign at the beginning.
        is_valid = pattern and not pattern.startswith(("!", "\\#")) and "[" not in pattern and "***" not in pattern
        if is_valid and all(map(_OWNER.fullmatch, owners)):
            yield OwnerRule(pattern, tuple(owners))


def _gitlab_rules(lines: Sequence[str]) -> Iterator[OwnerRule]:
    section, defaults = "", tuple[str, ...]()
    for line in lines:
        heading = _heading(line)
        if heading is not None:
            section = heading["name"].strip().casefold()  # names are not case-sensitive, and equal ones are one section
            defaults = tuple(_OWNER.findall(heading["owners"]))
            continue
        pattern, *words = _words(line) or [""]
        excludes = pattern.startswith("!")
        owners = tuple(word for word in words if _OWNER.fullmatch(word)) or defaults
        if pattern.removeprefix("!") and (owners or excludes):
            yield OwnerRule(pattern[excludes:], () if excludes else owners, section, excludes)


def _heading(line: str) -> re.Match[str] | None:
    """Return a line that begins a section; a pattern cannot begin with a bracket that is closed before a space."""
    found = _SECTION.fullmatch(line)
    return found if found is not None and found["name"].strip() else None


def _words(line: str) -> list[str]:
    return [] if line.startswith("#") else _WORDS.findall(line)


def _expression(pattern: str, dialect: Dialect) -> str:
    """Return a pattern as an expression over whole paths."""
    if not pattern.strip("/"):
        return "(?!)"
    segments = pattern.removeprefix("/").split("/")
    is_name = len(segments) == 1 or segments[1:] == [""]
    if not pattern.startswith("/") and (is_name or dialect is Dialect.GITLAB):
        segments.insert(0, "**")
    if segments[-1] == "":
        segments[-1] = "**"
    runs: list[list[str]] = [[]]
    for segment in segments:
        if segment != "**":
            runs[-1].append(_segment(segment))
        elif len(runs) == 1 or runs[-1]:
            runs.append([])
    last = segments[-1]
    below = "" if last in {"*", "**"} or dialect is Dialect.GITLAB else "(?:/.*)?"
    parts = ["".join(f"{one}/" for one in run) for run in runs[:-1]]
    end = "/".join(runs[-1]) if runs[-1] else ".+"
    if len(runs) == 1:
        return end + below
    # Between two `**` the first place is enough: an earlier one leaves more of the path to the rest.
    between = [f"(?>(?:[^/]+/)*?{part})" for part in parts[1:]]
    return "".join([parts[0], *between, "" if end == ".+" else "(?:[^/]+/)*?", end, below])


def _segment(segment: str) -> str:
    if segment == "*":
        return "[^/]+"
    runs = [""]
    for token in _TOKEN.finditer(segment):
        if token["stars"]:
            runs.append("")
        else:
            runs[-1] += "[^/]" if token["any"] else re.escape(token["escaped"] or token["plain"])
    first, *others = runs
    between = [f"(?>[^/]*?{run})" for run in others[:-1] if run]
    return "".join([first, *between, *(f"[^/]*{run}" for run in others[-1:])])

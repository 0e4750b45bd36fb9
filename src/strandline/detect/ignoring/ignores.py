"""Ignoring: findings that somebody has decided not to see, each counted and listed with the reason.

Four things leave a finding out, asked in this order:

    comment      `gitleaks:allow` or `strandline:allow` on the line of the match, as the engine marks it
    fingerprint  a line of a `.gitleaksignore`: `commit:file:rule:line`, or `file:rule:line` for every commit
    baseline     a report of an earlier run knows it (`strandline.detect.ignoring.baselines`)
    path         a glob leaves its file out (`strandline.detect.ignoring.globs`)

Invariants: pure functions over values; nothing is dropped without a reason; a finding that is left out for several
reasons is counted once, for the first.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

from strandline.detect.ignoring.baselines import Baseline
from strandline.detect.ignoring.globs import PathGlobs, clean_path
from strandline.errors import InvalidInput
from strandline.pipeline.identity import SecretHash

_COMMIT = re.compile(r"[0-9a-f]{7,64}")


class FindingLike(Protocol):
    """What ignoring asks of a finding; `strandline.detect.results.Found` is one."""

    @property
    def rule_id(self) -> str:
        """Return the rule that found it."""
        ...

    @property
    def path(self) -> str:
        """Return the path of its item, with those of the members behind `!`."""
        ...

    @property
    def line(self) -> int:
        """Return its line, counted from 1."""
        ...

    @property
    def secret(self) -> SecretHash:
        """Return the keyed hash of its secret."""
        ...

    @property
    def comment(self) -> str:
        """Return the comment on its line that allows it, or nothing."""
        ...


class Reason(Enum):
    """Why a finding is left out."""

    COMMENT = "comment"
    FINGERPRINT = "fingerprint"
    BASELINE = "baseline"
    PATH = "path"


class Cause(NamedTuple):
    """A reason, and where it stands: the comment, a file's line, a baseline, a glob."""

    reason: Reason
    detail: str


class Fingerprint(NamedTuple):
    """A finding as gitleaks names it; without a commit it is that of every commit."""

    path: str
    rule_id: str
    line: int
    commit: str = ""


def format_fingerprint(fingerprint: Fingerprint) -> str:
    """Return a fingerprint as it stands in a `.gitleaksignore`."""
    place = f"{clean_path(fingerprint.path)}:{fingerprint.rule_id}:{fingerprint.line}"
    return f"{fingerprint.commit}:{place}" if fingerprint.commit else place


def parse_fingerprint(text: str) -> Fingerprint | None:
    """Return what a line of a `.gitleaksignore` names, or None if it is no fingerprint.

    A path may hold colons: the line and the rule are read from the end, and a commit is hexadecimal.
    """
    rest, _, line = text.rpartition(":")
    rest, _, rule = rest.rpartition(":")
    if not rest or not rule or not line.isascii() or not line.isdigit():
        return None
    commit, mark, path = rest.partition(":")
    if mark and path and _COMMIT.fullmatch(commit):
        return Fingerprint(clean_path(path), rule, int(line), commit)
    return Fingerprint(clean_path(rest), rule, int(line))


def parse_ignore_file(text: str, source: str = ".gitleaksignore") -> dict[Fingerprint, str]:
    """Return the fingerprints of a file, each with the place where it stands."""
    found: dict[Fingerprint, str] = {}
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        fingerprint = parse_fingerprint(entry)
        if fingerprint is None:
            raise InvalidInput(
                f"{source}, line {number}: not a fingerprint", hint="write commit:file:rule:line or file:rule:line"
            )
        found.setdefault(fingerprint, f"{source}, line {number}")
    return found


FindingT = TypeVar("FindingT", bound=FindingLike)


@dataclass(frozen=True)
class Sorted(Generic[FindingT]):
    """Findings to show, and those left out with the cause of each."""

    kept: tuple[FindingT, ...]
    ignored: tuple[tuple[FindingT, Cause], ...]

    @property
    def counts(self) -> dict[Reason, int]:
        """Return how many findings each reason left out."""
        counted = Counter(cause.reason for _, cause in self.ignored)
        return {reason: counted[reason] for reason in Reason if counted[reason]}


@dataclass(frozen=True)
class Ignores:
    """All that leaves findings out of a report."""

    fingerprints: Mapping[Fingerprint, str] = field(default_factory=dict)
    baselines: tuple[Baseline, ...] = ()
    globs: tuple[PathGlobs, ...] = ()

    def cause(self, finding: FindingLike, *, commit: str = "") -> Cause | None:
        """Return why a finding is left out, or None; `commit` is the one it was seen in, if it was in one."""
        if finding.comment:
            return Cause(Reason.COMMENT, finding.comment)
        place = self._fingerprint(finding, commit)
        if place is not None:
            return Cause(Reason.FINGERPRINT, place)
        for baseline in self.baselines:
            if baseline.knows(finding.rule_id, finding.path, finding.line, finding.secret):
                return Cause(Reason.BASELINE, baseline.source)
        return self.leaves_out_file(finding.path)

    def sort(self, findings: Iterable[FindingT], *, commit: str = "") -> Sorted[FindingT]:
        """Return the findings of one commit (or of none) that are kept, and the others with their causes."""
        kept: list[FindingT] = []
        ignored: list[tuple[FindingT, Cause]] = []
        for finding in findings:
            cause = self.cause(finding, commit=commit)
            if cause is None:
                kept.append(finding)
            else:
                ignored.append((finding, cause))
        return Sorted(tuple(kept), tuple(ignored))

    def leaves_out_file(self, path: str) -> Cause | None:
        """Return why a whole file need not be read, or None."""
        for globs in self.globs:
            glob = globs.leaving_out(path)
            if glob is not None:
                return Cause(Reason.PATH, f"{globs.source}, line {glob.line}: {glob.text}")
        return None

    def _fingerprint(self, finding: FindingLike, commit: str) -> str | None:
        everywhere = Fingerprint(clean_path(finding.path), finding.rule_id, finding.line)
        place = self.fingerprints.get(everywhere)
        return place or (self.fingerprints.get(everywhere._replace(commit=commit)) if commit else None)

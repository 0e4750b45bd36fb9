"""Ignores: findings to leave out of a report, each counted with its reason.

Four reasons exclude a finding, checked in this order:

    comment      a comment such as `gitleaks:allow` on the line of the match, as the engine marks it
    fingerprint  a line of a `.gitleaksignore`: `commit:file:rule:line`, or `file:rule:line` for every commit
    baseline     a report of an earlier run holds it (`strandline.findings.baselines`)
    path         a glob excludes its file (`strandline.scan.path_globs`)

Invariants: matching is pure; `load_ignores` alone reads files; a finding that is left out for several reasons counts
once, for the first.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from strandline.errors import InvalidInput
from strandline.files import storage_errors
from strandline.findings.baselines import Baseline, parse_baseline
from strandline.pipeline.identity import SecretHash, TenantSecretKey
from strandline.scan.path_globs import PathGlobs, clean_path

IGNORE_FILE = ".gitleaksignore"
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


class FindingLike(Protocol):
    """The attributes of a finding that ignores use; `strandline.detect.results.Found` has them."""

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
    """The reason for leaving a finding out."""

    COMMENT = "comment"
    FINGERPRINT = "fingerprint"
    BASELINE = "baseline"
    PATH = "path"


class Cause(NamedTuple):
    """A reason with its origin: the comment, a file's line, a baseline, a glob."""

    reason: Reason
    detail: str


class Fingerprint(NamedTuple):
    """A finding in gitleaks' notation; without a commit it matches every commit."""

    path: str
    rule_id: str
    line: int
    commit: str = ""


def format_fingerprint(fingerprint: Fingerprint) -> str:
    """Return a fingerprint as a line of a `.gitleaksignore`."""
    place = f"{clean_path(fingerprint.path)}:{fingerprint.rule_id}:{fingerprint.line}"
    return f"{fingerprint.commit}:{place}" if fingerprint.commit else place


def parse_fingerprint(text: str) -> Fingerprint | None:
    """Return the fingerprint of a line of a `.gitleaksignore`, or None.

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


def parse_ignore_file(text: str, source: str = IGNORE_FILE) -> dict[Fingerprint, str]:
    """Return the fingerprints of a file, each with its line."""
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
    """Fingerprints, baselines and globs that leave findings out of a report."""

    fingerprints: Mapping[Fingerprint, str] = field(default_factory=dict)
    baselines: tuple[Baseline, ...] = ()
    globs: tuple[PathGlobs, ...] = ()

    def cause(self, finding: FindingLike, *, commit: str = "", nth: int = 0) -> Cause | None:
        """Return the cause that leaves a finding out, or None; `commit` is the commit of its blob, if any.

        `nth` is its number among the secrets of its rule and path, 0 if that is unknown.
        """
        if finding.comment:
            return Cause(Reason.COMMENT, finding.comment)
        place = self._fingerprint(finding, commit)
        if place is not None:
            return Cause(Reason.FINGERPRINT, place)
        for baseline in self.baselines:
            if baseline.knows(finding.rule_id, finding.path, finding.line, finding.secret, nth):
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
        """Return the glob that excludes a whole file, or None."""
        for globs in self.globs:
            glob = globs.leaving_out(path)
            if glob is not None:
                return Cause(Reason.PATH, f"{globs.source}, line {glob.line}: {glob.text}")
        return None

    def _fingerprint(self, finding: FindingLike, commit: str) -> str | None:
        everywhere = Fingerprint(clean_path(finding.path), finding.rule_id, finding.line)
        place = self.fingerprints.get(everywhere)
        return place or (self.fingerprints.get(everywhere._replace(commit=commit)) if commit else None)


def load_ignores(
    key: TenantSecretKey,
    *,
    files: Sequence[Path] | None = None,
    baselines: Sequence[Path] | None = None,
    roots: Iterable[str] = (),
) -> Ignores:
    """Read ignore files and baselines; without `files`, each `.gitleaksignore` of the current folder and the roots."""
    chosen = _default_files(roots) if files is None else files
    fingerprints: dict[Fingerprint, str] = {}
    for path in chosen:
        fingerprints = {**parse_ignore_file(_read(path), str(path)), **fingerprints}
    return Ignores(fingerprints, tuple(parse_baseline(_read(path), key, str(path)) for path in baselines or ()))


def _default_files(roots: Iterable[str]) -> list[Path]:
    folders = [Path.cwd(), *(Path(root) for root in roots if root)]
    return [path for path in dict.fromkeys(folder / IGNORE_FILE for folder in folders) if path.is_file()]


def _read(path: Path) -> str:
    with storage_errors(path):
        return path.read_text(encoding="utf-8", errors="replace")

"""Compiled allowlists: they decide whether a match is known not to be a secret.

Invariants: with `all_of` every criterion of a list must hold, otherwise one is enough; a line is read up to a bound on
either side, so that a file without line breaks costs no more than another.
"""

import re
from dataclasses import dataclass

from strandline.detect.expressions.linear import Work
from strandline.detect.expressions.patterns import Pattern
from strandline.detect.rules.rule import Allowlist, parse_regex

LINE_BYTES_MAX = 4_096
_TEXT_BYTES_MAX = 32_768
_PATH_BYTES_MAX = 4_096
_LIST = rb"pragma: ?(?:allow|white)[ -]?list"
_HINTS = (b":allow", b":ignore", b"pragma:")
_ON_LINE = re.compile(
    rb"(gitleaks:allow)|(strandline:allow)|(" + _LIST + rb"[ -]secret)|(trufflehog:ignore)|(kingfisher:ignore)"
)
_ON_LINES = ("gitleaks:allow", "strandline:allow", "pragma: allowlist secret", "trufflehog:ignore", "kingfisher:ignore")
_BEFORE = re.compile(_LIST + rb"[ -]nextline[ -]secret")
_BEFORE_NAME = "pragma: allowlist nextline secret"


@dataclass(frozen=True, slots=True)
class Subject:
    """A match to check; `start` and `end` are its span in the buffer."""

    data: bytes
    secret: bytes
    start: int
    end: int
    path: str
    commit: str
    work: Work

    def __repr__(self) -> str:
        return f"Subject(start={self.start}, end={self.end})"

    def line(self) -> bytes:
        """Return the lines of the match."""
        return line_of(self.data, self.start, self.end)


def line_of(data: bytes, start: int, end: int) -> bytes:
    """Return the lines of a span."""
    least, most = max(0, start - LINE_BYTES_MAX), min(len(data), end + LINE_BYTES_MAX)
    first = data.rfind(b"\n", least, start)
    last = data.find(b"\n", end, most)
    return data[least if first < 0 else first + 1 : most if last < 0 else last]


def comment_on(data: bytes, start: int, end: int) -> str:
    """Return the comment on the lines of a span, or before them, that allows a match there, or an empty text."""
    line = line_of(data, start, end)
    # Without a byte that all alternatives begin with, `re` takes a millisecond for a line of several kilobytes.
    found = _ON_LINE.search(line) if any(hint in line for hint in _HINTS) else None
    if found is not None and found.lastindex is not None:
        return _ON_LINES[found.lastindex - 1]
    first = data.rfind(b"\n", max(0, start - LINE_BYTES_MAX), start)
    return _BEFORE_NAME if first > 0 and _BEFORE.search(line_of(data, first, first)) else ""


class CompiledAllowlist:
    """A compiled allowlist; one whose expressions are known to be quick spares the proof."""

    def __init__(self, allowlist: Allowlist, *, is_known_quick: bool = False) -> None:
        self._all_of = allowlist.all_of
        self._target = allowlist.regex_target
        self._commits = frozenset(allowlist.commits)
        quick = is_known_quick
        self._paths = tuple(path_pattern("allowlist", path, is_known_quick=quick) for path in allowlist.paths)
        trees = (parse_regex("allowlist", regex) for regex in allowlist.regexes)
        self._regexes = tuple(Pattern("allowlist", tree, _TEXT_BYTES_MAX, is_known_quick=quick) for tree in trees)
        self._stopwords = tuple(word.encode() for word in allowlist.stopwords)

    def allows(self, subject: Subject) -> bool:
        """Return whether the match is allowed."""
        checks = []
        if self._commits:
            checks.append(subject.commit.lower() in self._commits)
        if self._paths:
            checks.append(self._allows_path(subject.path, subject.work))
        if self._regexes:
            text = self._text(subject)
            checks.append(any(regex.is_in(text, subject.work) for regex in self._regexes))
        if self._stopwords:
            lowered = subject.secret.lower()
            checks.append(any(word in lowered for word in self._stopwords))
        return all(checks) if self._all_of else any(checks)

    @property
    def is_quick(self) -> bool:
        """Return whether `re` matches all its expressions."""
        return all(pattern.is_quick for pattern in (*self._paths, *self._regexes))

    @property
    def is_for_files(self) -> bool:
        """Return whether the list may allow everything in an item."""
        return not self._all_of and bool(self._paths or self._commits)

    def allows_file(self, path: str, commit: str, work: Work) -> bool:
        """Return whether the list allows every match in an item."""
        if self._all_of:
            return False
        return self._allows_path(path, work) or (bool(self._commits) and commit.lower() in self._commits)

    def _allows_path(self, path: str, work: Work) -> bool:
        text = path.encode(errors="surrogateescape")
        return any(pattern.is_in(text, work) for pattern in self._paths)

    def _text(self, subject: Subject) -> bytes:
        match self._target:
            case "secret":
                return subject.secret
            case "match":
                return subject.data[subject.start : subject.end]
            case "line":
                return subject.line()


def path_pattern(where: str, regex: str, *, is_known_quick: bool = False) -> Pattern:
    """Return the pattern of a path expression."""
    return Pattern(where, parse_regex(where, regex), _PATH_BYTES_MAX, is_known_quick=is_known_quick)

"""Subjects: validation, and matching of patterns.

A subject is tokens separated by dots. In a pattern, `*` stands for one token and `>`, as the last, for one or more.

Invariants: an empty token, white space, or a control character is never valid. A wildcard is a whole token; within a
longer token it is an ordinary character, as nats-server has it.
"""

import re
from collections.abc import Callable, Iterable

from strandline.wire.errors import InvalidSubject

ANY = "*"
REST = ">"
_REFUSED = re.compile("[\0- \x7f]")


def validate_subject(subject: str, *, wildcards: bool = False) -> str:
    """Return the subject; `InvalidSubject` if no server would take it, or if it is a pattern and may not be."""
    if not subject:
        raise InvalidSubject(subject, "is empty")
    if _REFUSED.search(subject):
        raise InvalidSubject(subject, "has white space or a control character")
    tokens = subject.split(".")
    if "" in tokens:
        raise InvalidSubject(subject, "has an empty token")
    if REST in tokens[:-1]:
        raise InvalidSubject(subject, "has > before its last token")
    if not wildcards and (ANY in tokens or tokens[-1] == REST):
        raise InvalidSubject(subject, "has a wildcard")
    return subject


def has_wildcard(subject: str) -> bool:
    """Tell whether a token of the subject is a wildcard."""
    if ANY not in subject and REST not in subject:
        return False
    return any(token in (ANY, REST) for token in subject.split("."))


def subject_matches(pattern: str, subject: str) -> bool:
    """Tell whether a subject without wildcards is one of a pattern's."""
    return matcher([pattern])(subject)


def pattern_covers(pattern: str, other: str) -> bool:
    """Tell whether every subject of another pattern is one of this pattern's."""
    ours, theirs = pattern.split("."), other.split(".")
    for number, token in enumerate(ours):
        if token == REST:
            return len(theirs) > number
        if number >= len(theirs) or theirs[number] == REST or token not in (ANY, theirs[number]):
            return False
    return len(ours) == len(theirs)


def patterns_overlap(one: str, other: str) -> bool:
    """Tell whether some subject belongs to both patterns."""
    ours, theirs = one.split("."), other.split(".")
    for left, right in zip(ours, theirs, strict=False):
        if REST in (left, right):
            return True
        if ANY not in (left, right) and left != right:
            return False
    return len(ours) == len(theirs)


def matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return a test for subjects of any of some patterns; it splits a subject once, and only if it has to."""
    literal: set[str] = set()
    prefixes: list[str] = []
    others: list[list[str]] = []
    for pattern in patterns:
        if not has_wildcard(pattern):
            literal.add(pattern)
            continue
        head, _, last = pattern.rpartition(".")
        if last == REST and not has_wildcard(head):
            prefixes.append(f"{head}." if head else "")
        else:
            others.append(pattern.split("."))
    starts = tuple(prefixes)

    def matches(subject: str) -> bool:
        if subject in literal or any(subject.startswith(start) and len(subject) > len(start) for start in starts):
            return True
        return bool(others) and any(map(_token_test(subject), others))

    return matches


def _token_test(subject: str) -> Callable[[list[str]], bool]:
    tokens = subject.split(".")

    def fits(pattern: list[str]) -> bool:
        if pattern[-1] == REST:
            return len(tokens) >= len(pattern) and all(
                token in (ANY, own) for token, own in zip(pattern[:-1], tokens, strict=False)
            )
        return len(tokens) == len(pattern) and all(
            token in (ANY, own) for token, own in zip(pattern, tokens, strict=True)
        )

    return fits

"""A trie of subscription patterns, with cached match results.

Invariants: a result equals matching every pattern one by one, whatever is cached. A subject with an empty token matches
nothing. Within a published subject a wildcard is an ordinary token: only `*` and `>` of patterns match it.

Cached are results for a subject; for all subjects made of a prefix and one more token, if no pattern tells the last
tokens apart (inbox replies, keys); and for everything below a prefix, if only `>` decides there. The last two make a
run of messages as cheap as one. Adding or removing a pattern drops the results that it can affect: without wildcards,
those of its own subject and its prefixes.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

E = TypeVar("E", bound=Hashable)
R = TypeVar("R")
V = TypeVar("V")

ANY = b"*"
REST = b">"
CACHED_MAX = 1 << 16
BELOW_TOKENS = 2


_NONE: dict[Any, Any] = {}
"""What a node holds before anything is added to it: most nodes are leaves with one entry, and there may be many."""


class _Node(Generic[E]):
    __slots__ = ("any", "children", "entries", "rest")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node[E]] = _NONE
        self.any: _Node[E] | None = None
        self.entries: dict[E, None] = _NONE
        self.rest: dict[E, None] = _NONE

    def child(self, token: bytes) -> "_Node[E]":
        """Return the node below for a token, made where there is none."""
        if self.children is _NONE:
            self.children = {}
        found = self.children.get(token)
        if found is None:
            found = self.children[token] = _Node()
        return found

    def hold(self, entry: E, *, rest: bool) -> bool:
        """Keep an entry, among those of `>` or those that end here; tell whether it is new."""
        kept = self.rest if rest else self.entries
        if entry in kept:
            return False
        if kept is not _NONE:
            kept[entry] = None
        elif rest:
            self.rest = {entry: None}
        else:
            self.entries = {entry: None}
        return True

    def is_empty(self) -> bool:
        return not (self.children or self.any or self.entries or self.rest)


class Sublist(Generic[E, R]):
    """Entries by pattern; `combine` turns the entries whose patterns match into one cached result."""

    def __init__(self, combine: Callable[[tuple[E, ...]], R]) -> None:
        self._combine = combine
        self._root: _Node[E] = _Node()
        self._exact: dict[bytes, R] = {}
        self._tails: dict[bytes, R | None] = {}
        self._below: dict[bytes, R | None] = {}
        self._answers: dict[tuple[int, ...], tuple[tuple[E, ...], R]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, pattern: bytes, entry: E) -> None:
        """Add an entry under a valid pattern; idempotent."""
        node = self._root
        tokens = pattern.split(b".")
        for token in tokens[:-1] if tokens[-1] == REST else tokens:
            if token == ANY:
                node.any = node.any or _Node()
                node = node.any
            else:
                node = node.child(token)
        self._drop_answer(pattern)
        self._count += node.hold(entry, rest=tokens[-1] == REST)
        self._forget(pattern)

    def remove(self, pattern: bytes, entry: E) -> None:
        """Remove an entry from under a pattern."""
        path = [self._root]
        tokens = pattern.split(b".")
        for token in tokens[:-1] if tokens[-1] == REST else tokens:
            child = path[-1].any if token == ANY else path[-1].children.get(token)
            if child is None:
                return
            path.append(child)
        kept = path[-1].rest if tokens[-1] == REST else path[-1].entries
        if entry not in kept:
            return
        self._drop_answer(pattern)
        del kept[entry]
        self._count -= 1
        self._prune(path, tokens)
        self._forget(pattern)

    def renew(self, pattern: bytes) -> None:
        """Drop cached results with entries of a pattern, because an entry itself has changed."""
        self._drop_answer(pattern)
        self._forget(pattern)

    def _drop_answer(self, pattern: bytes) -> None:
        # A wildcard pattern drops all results anyway; any other is part of the result of its own subject alone.
        if pattern in self._exact:
            self._answers.pop(tuple(map(id, self.entries(pattern))), None)

    def _forget(self, pattern: bytes) -> None:
        head, _, last = pattern.rpartition(b".")
        if last in (ANY, REST) or (ANY in head and ANY in head.split(b".")):
            self.forget_all()
            return
        self._exact.pop(pattern, None)
        self._tails.pop(head, None)
        if self._below:
            while head:
                self._below.pop(head, None)
                head = head.rpartition(b".")[0]
        if len(self._answers) > CACHED_MAX:
            self.forget_all()

    def forget_all(self) -> None:
        """Drop every cached result."""
        for kept in (self._exact, self._tails, self._below, self._answers):
            kept.clear()

    def find(self, subject: bytes) -> R:
        """Return the result for a subject."""
        found = self._exact.get(subject)
        if found is not None:
            return found
        head, dot, tail = subject.rpartition(b".")
        if dot and tail:
            found = self._tails[head] if head in self._tails else self._find_below(subject)
            if found is None and head not in self._tails:
                found = self._learn_tails(head)
            if found is not None:
                return found
        return self._learn(subject)

    def _find_below(self, subject: bytes) -> R | None:
        """Return the result for everything below the first two tokens of a subject, if there is one.

        Long subjects that never repeat, such as ack subjects, are answered here without being cached.
        """
        if subject.count(b".") < BELOW_TOKENS or b".." in subject:
            return None
        one, two, _ = subject.split(b".", BELOW_TOKENS)
        head = b"%b.%b" % (one, two)
        return self._below[head] if head in self._below else self._learn_below(head)

    def find_common(self, subjects: list[bytes]) -> R | None:
        """Return the common result of some subjects, None if they must be looked up one by one.

        The cost does not depend on the number of patterns, and is a fraction of one `find` per subject.
        """
        first = subjects[0]
        if len(subjects) == 1 or subjects.count(first) == len(subjects):
            return self.find(first)
        head = _common_head(min(subjects), max(subjects))
        if not head:
            return None
        text = b"\n".join(subjects)
        if b".." in text or b".\n" in text or text.endswith(b"."):
            return None
        found = self._below[head] if head in self._below else self._learn_below(head)
        if found is None and text.count(b".") == len(subjects) * (head.count(b".") + 1):
            found = self._tails[head] if head in self._tails else self._learn_tails(head)
        return found

    def entries(self, subject: bytes) -> list[E]:
        """Return the entries whose patterns match a subject; nothing is cached."""
        tokens = subject.split(b".")
        if b"" in tokens:
            return []
        found, nodes = self._walk(tokens)
        for node in nodes:
            found += node.entries
        return found

    def _walk(self, tokens: Iterable[bytes]) -> tuple[list[E], list[_Node[E]]]:
        """Return the entries matched by `>` on the way, and the nodes reached at the end."""
        found: list[E] = []
        nodes = [self._root]
        for token in tokens:
            following: list[_Node[E]] = []
            for node in nodes:
                found += node.rest
                child = node.children.get(token)
                if child is not None:
                    following.append(child)
                if node.any is not None:
                    following.append(node.any)
            nodes = following
        return found, nodes

    def _learn(self, subject: bytes) -> R:
        if len(self._exact) >= CACHED_MAX:
            self.forget_all()
        found = self._exact[subject] = self._answer(self.entries(subject))
        return found

    def _learn_tails(self, head: bytes) -> R | None:
        tokens = head.split(b".")
        found, nodes = self._walk(tokens)
        if b"" in tokens or any(node.children for node in nodes):
            return _keep(self._tails, head, None)
        for node in nodes:
            found += node.rest
            found += node.any.entries if node.any is not None else ()
        return _keep(self._tails, head, self._answer(found))

    def _learn_below(self, head: bytes) -> R | None:
        tokens = head.split(b".")
        found, nodes = self._walk(tokens)
        if b"" in tokens or any(node.children or node.any for node in nodes):
            return _keep(self._below, head, None)
        for node in nodes:
            found += node.rest
        return _keep(self._below, head, self._answer(found))

    def _answer(self, found: list[E]) -> R:
        # Equal entries share one result object, so that runs of messages are found by comparing identities.
        ids = tuple(map(id, found))
        known = self._answers.get(ids)
        if known is None:
            entries = tuple(found)
            known = self._answers[ids] = entries, self._combine(entries)
        return known[1]

    @staticmethod
    def _prune(path: list[_Node[E]], tokens: list[bytes]) -> None:
        for number in range(len(path) - 1, 0, -1):
            if not path[number].is_empty():
                return
            parent, token = path[number - 1], tokens[number - 1]
            if token == ANY:
                parent.any = None
            else:
                parent.children.pop(token, None)


def _keep(kept: dict[bytes, V], key: bytes, value: V) -> V:
    if len(kept) >= CACHED_MAX:
        kept.clear()
    kept[key] = value
    return value


def _common_head(low: bytes, high: bytes) -> bytes:
    """Return the tokens that two subjects, and so all subjects sorted between them, have in common at the start."""
    length = next(
        (number for number, (one, other) in enumerate(zip(low, high, strict=False)) if one != other), len(low)
    )
    return low[:length].rpartition(b".")[0]

"""A trie of patterns that finds those overlapping another pattern.

Invariants: an answer is what `patterns_overlap` would say of every pattern one by one. A question without wildcards
takes time by its own tokens and the wildcards that stand in its way, not by the number of patterns; one with wildcards
also looks at the branches that they stand for. A caller that asks for a client sets `steps`: what takes more raises
`TooManySteps` instead of holding everything up.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from strandline.wire.subjects import ANY, REST, has_wildcard

K = TypeVar("K", bound=Hashable)


class TooManySteps(Exception):
    """A question, or a number of them, would take longer than its caller allows."""


_NONE: dict[Any, Any] = {}
"""What a node holds before anything is added to it: most nodes are leaves with one key, and there may be many."""


class _Node(Generic[K]):
    __slots__ = ("branches", "ends", "rests")

    def __init__(self) -> None:
        self.branches: dict[str, _Node[K]] = _NONE
        self.ends: dict[K, None] = _NONE
        self.rests: dict[K, None] = _NONE

    def branch(self, token: str) -> "_Node[K]":
        """Return the node below for a token, made where there is none."""
        if self.branches is _NONE:
            self.branches = {}
        found = self.branches.get(token)
        if found is None:
            found = self.branches[token] = _Node()
        return found


class PatternIndex(Generic[K]):
    """Patterns, each kept for one key or several; `steps` is how many branches all questions may look at, -1 for any.

    Where one branch is left at each token nothing is counted: that is bounded by the question's length.
    """

    def __init__(self, steps: int = -1) -> None:
        self._root: _Node[K] = _Node()
        self.steps = steps

    def add(self, pattern: str, key: K) -> None:
        """Keep a valid pattern for a key; the same again changes nothing."""
        node = self._root
        for token in pattern.split("."):
            if token == REST:
                if node.rests is _NONE:
                    node.rests = {}
                node.rests[key] = None
                return
            node = node.branch(token)
        if node.ends is _NONE:
            node.ends = {}
        node.ends[key] = None

    def remove(self, pattern: str, key: K) -> None:
        """Let go of a pattern that is kept for a key; harmless if it is not."""
        path, tokens = [self._root], pattern.split(".")
        for token in tokens:
            if token == REST:
                path[-1].rests.pop(key, None)
                break
            found = path[-1].branches.get(token)
            if found is None:
                return
            path.append(found)
        else:
            path[-1].ends.pop(key, None)
        for number in range(len(path) - 1, 0, -1):
            node = path[number]
            if node.branches or node.ends or node.rests:
                return
            del path[number - 1].branches[tokens[number - 1]]

    def overlapping(self, pattern: str) -> Iterator[K]:
        """Return the keys of patterns that share a subject with this one, some perhaps more than once."""
        nodes: list[_Node[K]] = [self._root]
        for token in pattern.split("."):
            following: list[_Node[K]] = []
            for node in nodes:
                yield from node.rests
                if token == REST:
                    yield from self._below(node)
                elif token == ANY:
                    following += node.branches.values()
                else:
                    for found in (node.branches.get(token), node.branches.get(ANY)):
                        if found is not None:
                            following.append(found)
            self._spend(len(following) - 1)
            nodes = following
        for node in nodes:
            yield from node.ends

    def has_overlap(self, pattern: str, but: K | None = None) -> bool:
        """Tell whether a pattern of another key than `but` shares a subject with this one."""
        return any(key != but for key in self.overlapping(pattern))

    def _below(self, node: _Node[K]) -> Iterator[K]:
        """Return the keys of all patterns that have more tokens than a node."""
        waiting = list(node.branches.values())
        while waiting:
            self._spend(1)
            each = waiting.pop()
            yield from each.ends
            yield from each.rests
            waiting += each.branches.values()

    def _spend(self, steps: int) -> None:
        if self.steps >= 0 and steps > 0:
            self.steps -= steps
            if self.steps < 0:
                raise TooManySteps


def first_overlap(patterns: Iterable[str], steps: int = -1) -> tuple[int, int] | None:
    """Return the numbers of the first pattern that shares a subject with another one, and of that one; None if none.

    `TooManySteps` if that takes more than `steps` looks.
    """
    listed = list(patterns)
    if len(set(listed)) == len(listed) and not any(map(has_wildcard, listed)):
        return None
    index: PatternIndex[int] = PatternIndex(steps)
    for number, pattern in enumerate(listed):
        index.add(pattern, number)
    for number, pattern in enumerate(listed):
        if index.has_overlap(pattern, number):
            return number, min(key for key in index.overlapping(pattern) if key != number)
    return None

"""The columns of an index of findings: codes as numpy arrays, texts as Arrow arrays.

Invariants: row numbers are the order of places, current findings first; nothing is changed after it was built but
states, whose array is replaced as a whole, so that a reader in another thread sees the old one or the new one.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.findings.index_query import FindingQuery, place_pattern
from strandline.findings.reports.values import ReportFinding, state_name
from strandline.pipeline.triage import TriageState

Mask: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.int64]
_GROUP_DIGITS = 12


class Coded:
    """A column with few distinct values: a code for each row, and the values by code."""

    def __init__(self, values: Iterable[Any], known: Sequence[Any] = ()) -> None:
        codes = {value: code for code, value in enumerate(known)}
        self.rows: Rows = np.fromiter((codes.setdefault(value, len(codes)) for value in values), np.int64)
        self.values = list(codes)
        self.codes = codes

    def among(self, chosen: Sequence[Any]) -> Mask:
        """Return the rows that have one of some values; every row if none is given."""
        if not chosen:
            return np.ones(len(self.rows), np.bool_)
        wanted = np.zeros(len(self.values) + 1, np.bool_)
        wanted[[self.codes[one] for one in chosen if one in self.codes]] = True
        found: Mask = wanted[self.rows]
        return found

    def counts(self, mask: Mask) -> dict[Any, int]:
        """Return how many of some rows have each value; values without any are left out."""
        found = np.bincount(self.rows[mask], minlength=len(self.values))
        return {self.values[code]: int(found[code]) for code in np.flatnonzero(found)}


class Columns:
    """What findings are looked for, filtered, sorted and grouped by."""

    def __init__(self, findings: Sequence[ReportFinding], names: Sequence[str], gone: int) -> None:
        self.size = len(findings)
        self.rule = Coded(one.rule_id for one in findings)
        self.source = Coded(names)
        self.state = Coded((one.state for one in findings), [state_name(state) for state in TriageState])
        self.secret = Coded(bytes(one.secret) for one in findings)
        self.confidence: Rows = np.fromiter((one.location.confidence for one in findings), np.int64)
        self.level = Coded(one.level.value for one in findings)
        self.first_ns: Rows = np.fromiter((one.first_seen_ns for one in findings), np.int64)
        self.is_gone: Mask = np.arange(self.size) >= self.size - gone
        self.is_new: Mask = np.fromiter((one.is_new for one in findings), np.bool_) & ~self.is_gone
        self._paths = _texts(one.path for one in findings)
        self._haystack = _texts(
            f"{one.display}\n{one.rule_id}\n{name}\n{one.finding_id}" for one, name in zip(findings, names, strict=True)
        )
        self._by_secret: Rows = np.argsort(self.secret.rows, kind="stable")
        self._secret_starts: Rows = np.searchsorted(
            self.secret.rows[self._by_secret], np.arange(len(self.secret.values) + 1)
        )
        self._groups: dict[str, list[int]] = {}
        for code, secret in enumerate(self.secret.values):
            self._groups.setdefault(group_of(secret), []).append(code)
        self._orders: dict[str, Rows] = {}

    def decide(self, rows: Sequence[int], states: Sequence[str]) -> None:
        """Give some rows other states."""
        changed = self.state.rows.copy()
        changed[list(rows)] = [self.state.codes[state] for state in states]
        self.state.rows = changed

    def matching_texts(self, query: FindingQuery) -> Mask:
        """Return the rows that have the words, the place and the secret of a query."""
        found: Mask = np.ones(self.size, np.bool_)
        for number, word in enumerate(query.text.casefold().split()):
            rows = np.flatnonzero(found) if number else None  # a later word is looked for where the others are
            texts = self._haystack if rows is None else self._haystack.take(pa.array(rows))
            fits = _mask(pc.match_substring(texts, storable(word)))
            found = fits if rows is None else _only(self.size, rows[fits])
        if query.place:
            found &= _mask(pc.match_like(self._paths, storable(place_pattern(query.place).casefold())))
        if query.group:
            of_group = _only(self.size, np.zeros(0, np.int64))
            for code in self._groups.get(query.group.lower(), ()):
                of_group[self.of_secret(code)] = True
            found &= of_group
        return found

    def of_secret(self, code: int) -> Rows:
        """Return the rows of a secret, in order."""
        return self._by_secret[self._secret_starts[code] : self._secret_starts[code + 1]]

    def order(self, sort: str) -> Rows | None:
        """Return all rows in an order, None for that of places."""
        if sort not in self._orders and sort in _KEYS:
            self._orders[sort] = np.argsort(_KEYS[sort](self), kind="stable")
        return self._orders.get(sort)

    def _rule_ranks(self) -> Rows:
        ranks = np.empty(len(self.rule.values) + 1, np.int64)
        ranks[sorted(range(len(self.rule.values)), key=self.rule.values.__getitem__)] = range(len(self.rule.values))
        found: Rows = ranks[self.rule.rows]
        return found


_KEYS: dict[str, Callable[[Columns], Rows]] = {
    "newest": lambda columns: -columns.first_ns,
    "confidence": lambda columns: -columns.confidence,
    "rule": Columns._rule_ranks,  # noqa: SLF001 - of this module
}


def group_of(secret: bytes) -> str:
    """Return a name for a secret's group: too little of its hash to serve as a baseline."""
    return secret.hex()[:_GROUP_DIGITS]


def storable(text: str) -> str:
    """Return a text that UTF-8 can hold: bytes of names that are no UTF-8 become question marks here alone."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _texts(values: Iterable[str]) -> pa.Array:
    return pa.array([storable(value.casefold()) for value in values], pa.large_string())


def _mask(found: pa.Array) -> Mask:
    mask: Mask = found.to_numpy(zero_copy_only=False)
    return mask


def _only(size: int, rows: Rows) -> Mask:
    mask = np.zeros(size, np.bool_)
    mask[rows] = True
    return mask

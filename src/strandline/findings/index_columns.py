"""The columns of an index of findings: codes as numpy arrays, texts as Arrow arrays.

Invariants: row numbers are the order of places, current findings first; nothing is changed after it was built but
states, whose array is replaced as a whole, so that a reader in another thread sees the old one or the new one.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.detect.results import CONFIDENCE_MAX
from strandline.findings.index_query import FindingQuery, place_pattern
from strandline.findings.reports.values import Level, level_of, state_name
from strandline.pipeline.triage import TriageState

Mask: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.int64]
_GROUP_DIGITS = 12


VALUES = pa.schema(
    [
        *((name, pa.binary(32)) for name in ("id", "secret")),
        *((name, pa.large_binary()) for name in ("rule", "source", "path")),
        *((name, pa.int64()) for name in ("state", "confidence", "first_ns", "line", "column", "number", "object")),
        *((name, pa.bool_()) for name in ("is_new", "is_gone", "is_live")),
        *((name, pa.large_string()) for name in ("folded", "display")),
        ("url", pa.string()),
        ("byte_length", pa.int64()),
    ]
)
"""What is known of each finding: see `FindingRows`.

`folded` is its path, and that and `display` are for searches; `object` is where it is kept, null for one that is made
of `url`, `byte_length` and the `number` of its source. Names and paths are as `sortable` gives them.
"""


class Coded:
    """A column with few distinct values: a code for each row, and the values by code."""

    def __init__(self, rows: Rows, values: Sequence[Any]) -> None:
        self.rows = rows
        self.values = values
        self.codes = {value: code for code, value in enumerate(values)}

    @classmethod
    def of_names(cls, names: pa.ChunkedArray) -> "Coded":
        """Return a column of `sortable` names."""
        encoded = names.combine_chunks().dictionary_encode()
        return cls(encoded.indices.to_numpy().astype(np.int64), [*map(unsortable, encoded.dictionary.to_pylist())])

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
        return {self.values[int(code)]: int(found[code]) for code in np.flatnonzero(found)}


class Columns:
    """What findings are looked for, filtered, sorted and grouped by."""

    def __init__(self, values: pa.Table) -> None:
        """Take findings as columns of `VALUES`."""
        self.size = len(values)
        self.rule = Coded.of_names(values["rule"])
        self.source = Coded.of_names(values["source"])
        self.state = Coded(_numbers(values["state"]), [state_name(state) for state in TriageState])
        secrets = values["secret"].combine_chunks().dictionary_encode()
        self.secret: Rows = secrets.indices.to_numpy().astype(np.int64)
        self.secrets: pa.Array = secrets.dictionary
        self.confidence = _numbers(values["confidence"])
        levels = list(Level)
        at = [levels.index(level_of(confidence)) for confidence in range(CONFIDENCE_MAX + 1)]
        self.level = Coded(np.array(at)[self.confidence], [level.value for level in levels])
        self.first_ns = _numbers(values["first_ns"])
        self.is_gone = _mask(values["is_gone"].combine_chunks())
        self.is_new: Mask = _mask(values["is_new"].combine_chunks()) & ~self.is_gone
        self._paths = values["folded"].combine_chunks()
        self._exact_paths = values["path"].combine_chunks()
        self._haystack = _haystack(values, self.rule, self.source)
        self._by_secret: Rows = np.argsort(self.secret, kind="stable")
        self._secret_starts: Rows = np.searchsorted(self.secret[self._by_secret], np.arange(len(self.secrets) + 1))
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
            for code in self._codes_of(query.group.lower()):
                of_group[self.of_secret(int(code))] = True
            found &= of_group
        return found

    def _codes_of(self, group: str) -> Rows:
        """Return the secrets of a group: those whose hash begins with its digits."""
        try:
            begin = bytes.fromhex(group)
        except ValueError:
            begin = b""
        if len(group) != _GROUP_DIGITS or group_of(begin) != group:
            return np.zeros(0, np.int64)
        return np.flatnonzero(_mask(pc.starts_with(self.secrets.cast(pa.binary()), begin)))

    def of_secret(self, code: int) -> Rows:
        """Return the rows of a secret, in order."""
        return self._by_secret[self._secret_starts[code] : self._secret_starts[code + 1]]

    def paths_at(self, rows: Rows) -> int:
        """Return how many paths some rows have."""
        return len(self._exact_paths.take(pa.array(rows)).unique())

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


def sortable(text: str) -> bytes:
    """Return a text as bytes that sort as it does, also where it holds bytes that are no UTF-8."""
    return text.encode("utf-8", "surrogatepass")


def unsortable(data: bytes) -> str:
    """Return the text of `sortable`."""
    return data.decode("utf-8", "surrogatepass")


def folded(text: str) -> str:
    """Return a text as searches compare it."""
    return storable(text.casefold())


def _haystack(values: pa.Table, rule: Coded, source: Coded) -> pa.Array:
    """Return what words are looked for in: places, rules, sources and ids."""
    ids = values["id"].combine_chunks()
    digits = ids.cast(pa.binary()).to_numpy(zero_copy_only=False)
    texts = pa.array([one.hex() for one in digits], pa.large_string())
    rules, sources = (
        pa.array([folded(one) for one in column.values], pa.large_string()).take(pa.array(column.rows))
        for column in (rule, source)
    )
    return pc.binary_join_element_wise(
        values["display"].combine_chunks(), rules, sources, texts, pa.scalar("\n", pa.large_string())
    )


def _numbers(column: pa.ChunkedArray) -> Rows:
    found: Rows = column.to_numpy()
    return found


def _mask(found: pa.Array) -> Mask:
    mask: Mask = found.to_numpy(zero_copy_only=False)
    return mask


def _only(size: int, rows: Rows) -> Mask:
    mask = np.zeros(size, np.bool_)
    mask[rows] = True
    return mask

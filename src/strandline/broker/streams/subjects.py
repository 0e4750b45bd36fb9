"""The subjects of a stream: each has a small number, and its count, first and last sequence in columns.

Invariants: a number stands for the same subject until `renumber`, which bumps `generation`. `last` is exact, and 0
without messages. `first` is a lower bound, exact after `Index.first_of`. `count` is exact. The memory of cached filters
is bounded.
"""

from typing import ClassVar

import numpy as np

from strandline.broker.streams.arrays import Columns, Flags, Ids, Words
from strandline.broker.streams.patterns import BLOCK_NAMES, Block, Pattern
from strandline.wire import has_wildcard, matcher

RENUMBER_MIN = 16_384
FILTERS_MAX, FILTERS_BYTES_MAX = 1024, 16 << 20
"""Number and memory of cached filters; callers hold the filters that they use."""
FEW = 64
"""Up to so many subjects are tested one by one."""


class Subjects(Columns):
    """Names, numbers and the three columns."""

    TYPES: ClassVar[dict[str, type]] = {
        "count": np.uint32,
        "first": np.uint64,
        "last": np.uint64,
        "length": np.uint32,
    }
    count: Ids
    first: Words
    last: Words
    length: Ids
    count_at: memoryview
    first_at: memoryview
    last_at: memoryview

    def __init__(self) -> None:
        super().__init__()
        self.names: list[bytes] = []
        self.numbers: dict[bytes, int] = {}
        self.used = 0
        """How many subjects have messages."""
        self.generation = 0
        self._filters: dict[tuple[str, ...], Filter] = {}
        self._texts: list[bytes] = []

    def __len__(self) -> int:
        return len(self.names)

    def number(self, subject: bytes) -> int:
        """Return the number of a subject; a new subject gets a new number."""
        found = self.numbers.get(subject)
        return self._add(subject) if found is None else found

    def find(self, subject: bytes) -> int | None:
        """Return the number of a subject, or None."""
        return self.numbers.get(subject)

    def all_numbers(self, subjects: list[bytes]) -> list[int]:
        """Return the number of each subject."""
        try:
            return list(map(self.numbers.__getitem__, subjects))
        except KeyError:
            return list(map(self.number, subjects))

    def _add(self, subject: bytes) -> int:
        number = len(self.names)
        self.reserve(number + 1)
        self.names.append(subject)
        self.numbers[subject] = number
        self.length[number] = len(subject)
        return number

    @property
    def is_sparse(self) -> bool:
        """Whether most numbers stand for subjects without messages."""
        return len(self.names) > RENUMBER_MIN and self.used * 2 < len(self.names)

    def renumber(self) -> Ids:
        """Drop subjects without messages; return the new number of each old one (undefined for dropped ones)."""
        size = len(self.names)
        kept = np.flatnonzero(self.count[:size])
        new = np.zeros(size, np.uint32)
        new[kept] = np.arange(len(kept), dtype=np.uint32)
        names = self.names
        self.names = [names[number] for number in kept.tolist()]
        self.numbers = {name: number for number, name in enumerate(self.names)}
        for name in self.TYPES:
            column = getattr(self, name)
            column[: len(kept)] = column[kept]
            column[len(kept) : size] = 0
        self.shrink(len(kept))
        self.generation += 1
        self._texts.clear()
        return new

    def load(self, names: list[bytes]) -> None:
        """Take over the names of a snapshot; the columns are filled by the caller."""
        self.reserve(len(names))
        self.names = names
        self.numbers = dict(zip(names, range(len(names)), strict=True))

    # Patterns.

    def filter(self, patterns: tuple[str, ...]) -> "Filter":
        """Return which subjects some patterns match; remembered, so that each subject is looked at once."""
        found = self._filters.pop(patterns, None) or Filter(self, patterns)
        self._filters[patterns] = found  # now the most recently used; the least recently used are dropped first
        most = min(FILTERS_MAX, max(1, FILTERS_BYTES_MAX // (2 * len(self.names) + 1)))
        while len(self._filters) > most:
            del self._filters[next(iter(self._filters))]
        return found

    @property
    def filter_bytes(self) -> int:
        """How much the filters that are remembered take."""
        return sum(each.byte_count for each in self._filters.values())

    def block(self, start: int) -> Block:
        """Return the subjects from a multiple of `BLOCK_NAMES` on; the text of full blocks is cached."""
        stop, at = min(start + BLOCK_NAMES, len(self.names)), start // BLOCK_NAMES
        text = self._texts[at] if at < len(self._texts) else Block.text(self.names[start:stop])
        if at == len(self._texts) and stop - start == BLOCK_NAMES:
            self._texts.append(text)
        return Block(text, self.length[start:stop])


class Filter:
    """Which subjects some patterns match; evaluated once for each subject. No patterns match everything."""

    def __init__(self, subjects: Subjects, patterns: tuple[str, ...]) -> None:
        self.patterns = patterns
        self.is_everything = not patterns or ">" in patterns
        self._subjects = subjects
        self._literals = [_encode(each) for each in patterns if not has_wildcard(each)]
        self._wild = (
            [] if self.is_everything else [Pattern.of(_encode(each)) for each in patterns if has_wildcard(each)]
        )
        self._mask: Flags = np.zeros(0, np.bool_)
        self._known = 0
        self._generation = subjects.generation

    def mask(self) -> Flags:
        """Return, by the number of a subject, whether it matches; good until the next subject is added."""
        subjects = self._subjects
        if self._generation != subjects.generation:
            self._known, self._generation = 0, subjects.generation
        size = len(subjects)
        if self._known < size:
            if len(self._mask) < size:
                self._mask = np.resize(self._mask, size + size // 4 + 64)
            if self.is_everything:
                self._mask[self._known : size] = True
            elif size - self._known < FEW:
                self._mask[self._known : size] = self._test(subjects.names[self._known :])
            else:
                self._learn(size)
            self._known = size
        return self._mask[:size]

    @property
    def byte_count(self) -> int:
        """How much is remembered."""
        return len(self._mask)

    def _learn(self, size: int) -> None:
        """Test the subjects that are not known yet."""
        known, mask, subjects = self._known, self._mask, self._subjects
        mask[known:size] = False
        for number in map(subjects.find, self._literals):
            if number is not None and number >= known:
                mask[number] = True
        for start in range(known - known % BLOCK_NAMES, size, BLOCK_NAMES) if self._wild else ():
            block = subjects.block(start)
            for pattern in self._wild:
                mask[start + block.match(pattern)] = True

    def matches(self, numbers: Ids) -> Flags:
        """Return which of some subjects, given by number, match."""
        if self.is_everything:
            return np.ones(len(numbers), np.bool_)
        return self.mask()[numbers]

    def matches_subject(self, subject: bytes) -> bool:
        """Tell whether a subject matches, known or not."""
        return self.is_everything or self._test([subject])[0]

    def numbers(self) -> Ids:
        """Return the numbers of the subjects that match and have messages."""
        subjects = self._subjects
        counts = subjects.count[: len(subjects)]
        if self.is_everything:
            return np.flatnonzero(counts).astype(np.uint32)
        if not self._wild:
            found = {number for number in map(subjects.find, self._literals) if number is not None and counts[number]}
            return np.array(sorted(found), np.uint32)
        return np.flatnonzero(self.mask() & (counts > 0)).astype(np.uint32)

    def _test(self, names: list[bytes]) -> list[bool]:
        test = matcher(self.patterns)
        return [test(name.decode(errors="surrogateescape")) for name in names]


def _encode(pattern: str) -> bytes:
    return pattern.encode(errors="surrogateescape")

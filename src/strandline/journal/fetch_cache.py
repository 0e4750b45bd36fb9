"""Stretches of segments that `fetch` read, kept so that the next record of one costs no read, walk or checksum again.

A stretch is what lies between two neighbouring entries of a segment's index: one large batch, or many small ones. It
never changes once the index has the entry after it. All journals of a process share one cache, bounded by bytes.

Invariants: a batch is handed out after its checksum was checked, over the very bytes that are kept; a stretch is kept
only where all of it is durable and in this process's own journal, so nothing that a crash takes back, and nothing that
another process may repair, is served from here; what is kept is never needed: without it, it is read.
"""

import itertools
import os
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict

from strandline.journal.batch import HEADER_BYTES, BadBatch, Batch, parse_batch, parse_header

CACHE_BYTES_MAX = 32 * 1024 * 1024
"""What RocksDB gives its blocks by default."""
STRETCH_BYTES_MAX = 1024 * 1024
"""A longer stretch is one large batch, which is read and checked each time."""

BATCH_BYTES_MIN = 4096
"""A smaller batch is checked for each fetch: what stands for it, once it was, would take more memory than its bytes."""
OWN_BYTES = 1024
"""About what a stretch takes beside the bytes that it keeps."""

Key = tuple[int, int, int]


class Stretch:
    """The bytes of some neighbouring batches, which are found one after another, as far as was needed."""

    __slots__ = ("_at", "_batches", "_data", "_found", "_lock", "_tag", "end_offset")

    def __init__(self, data: bytes, base_offset: int, end_offset: int, tag: int) -> None:
        self._data = data
        self._tag = tag
        self._at = array("Q", [0])
        """Where batches begin; the last of them is yet to be looked at."""
        self._found = array("Q", [base_offset])
        """The offsets with which they begin."""
        self._batches: dict[int, Batch] = {}
        self._lock = threading.Lock()
        self.end_offset = end_offset

    def __len__(self) -> int:
        """Return about how many bytes of memory it takes; the places of its batches are not counted."""
        return OWN_BYTES + len(self._data)

    def batch(self, offset: int) -> Batch:
        """Return the checked batch that holds `offset`; raise `BadBatch` where it is not here as it should be."""
        found = self._found
        if offset >= found[-1]:
            with self._lock:
                self._find(offset)
        i = bisect_right(found, offset) - 1
        batch = self._batches.get(i)
        if batch is None:
            header = parse_header(self._data, self._at[i])
            batch = parse_batch(self._data, self._at[i], header)
            if batch.stored_bytes >= BATCH_BYTES_MIN:
                self._batches[i] = batch
        return batch

    def _find(self, offset: int) -> None:
        while offset >= self._found[-1]:
            at, expected = self._at[-1], self._found[-1]
            header = parse_header(self._data, at)
            if header.base_offset != expected or header.tag not in (self._tag, 0):
                raise BadBatch("the batch is not the one that belongs here")
            self._at.append(at + HEADER_BYTES + header.body_bytes)
            self._found.append(expected + header.records)  # last: a reader looks at these first


class FetchCache:
    """The stretches that were used last, of all journals of this process. Safe to use from many threads."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._stretches: OrderedDict[Key, Stretch] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._owners = itertools.count()

    def __len__(self) -> int:
        """Return how many bytes are kept."""
        return self._bytes

    def new_owner(self) -> int:
        """Return a number for a reader, under which no other keeps anything."""
        return next(self._owners)

    def get(self, key: Key) -> Stretch | None:
        """Return a stretch, by its owner, the base of its segment, and where it begins; None where it is not kept."""
        with self._lock:
            stretch = self._stretches.get(key)
            if stretch is not None:
                self._stretches.move_to_end(key)
            return stretch

    def put(self, key: Key, stretch: Stretch) -> None:
        """Keep a stretch, and let those go that were used longest ago."""
        with self._lock:
            before = self._stretches.pop(key, None)
            self._bytes += len(stretch) - (0 if before is None else len(before))
            self._stretches[key] = stretch
            while self._bytes > self._bytes_max:
                _, gone = self._stretches.popitem(last=False)
                self._bytes -= len(gone)

    def drop(self, key: Key) -> None:
        """Let go of a stretch in which something is wrong."""
        with self._lock:
            gone = self._stretches.pop(key, None)
            self._bytes -= 0 if gone is None else len(gone)

    def forget(self, owner: int, below: int | None = None) -> None:
        """Let go of what a reader kept, all of it or of segments that begin below an offset."""
        with self._lock:
            for key in [key for key in self._stretches if key[0] == owner and (below is None or key[1] < below)]:
                self._bytes -= len(self._stretches.pop(key))

    def begin_anew(self) -> None:
        """Keep nothing, with a new lock: in a forked child the thread that held the old one is not there."""
        self._lock = threading.Lock()
        self._stretches.clear()
        self._bytes = 0


SHARED = FetchCache()
os.register_at_fork(after_in_child=SHARED.begin_anew)

"""The pages of a replicated database at one position, fetched one by one from where they are in the object store.

A file of a replica ends with an index of its pages. The indexes of the files that a restore would apply say where the
latest version of each page is, and range requests fetch those that are asked for: nothing is restored.

Invariants: every page is the one that a restore to the same position would write. The files follow each other, as in a
restore. A page of an LZ4 frame is compared with its digest; the checksum of a whole file is not, since the file is not
read whole. A file that went away meanwhile (retention) is an error, never an older page.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple, Self

from strandline.objects import ObjectStore
from strandline.replica.errors import LtxDamaged, ReplicaGap
from strandline.replica.layout import LtxFile
from strandline.replica.ltx import (
    HEADER_BYTES,
    LtxHeader,
    decode_page,
    file_checksum,
    index_bytes,
    lock_page,
    parse_header,
    parse_index,
)

CACHE_BYTES = 64 << 20
"""How many bytes of pages are kept for the next question."""
TAIL_BYTES = 64 << 10
"""How much of the end of a file is read at first: the index of about 6,000 pages, or a whole small file."""
GAP_BYTES = 32 << 10
RANGE_BYTES = 4 << 20
REQUESTS = 4
_INDEX_END_BYTES = 24


class _Indexed(NamedTuple):
    file: LtxFile
    header: LtxHeader
    checksum: int
    places: list[tuple[int, int, int]]
    body: bytes | None
    """The file itself, where it was small enough to be read at once."""


class _Place(NamedTuple):
    file: int
    offset: int
    size: int


class ReplicaPages:
    """Pages by their number. Used by one thread."""

    def __init__(self, store: ObjectStore, plan: Sequence[LtxFile]) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(REQUESTS, "strandline-pages")
        self._cached: OrderedDict[int, bytes] = OrderedDict()
        try:
            self._files = list(self._pool.map(self._indexed, plan))
            _check_chain(store.address, self._files)
            self.header = self._files[-1].header
            self._places = _latest_places(self._files)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads that fetch; the store stays open."""
        self._pool.shutdown(cancel_futures=True)

    def page(self, number: int) -> bytes:
        """Return a page."""
        if number not in self._cached:
            self.prefetch([number])
        if number not in self._cached:
            problem = f"page {number} of {self.header.commit} is missing"
            raise ReplicaGap(self._store.address, self.header.max_txid, problem)
        self._cached.move_to_end(number)
        return self._cached[number]

    def prefetch(self, numbers: Sequence[int]) -> None:
        """Fetch pages, neighbours together; numbers that the database does not have are passed over."""
        wanted = {number for number in numbers if number not in self._cached and number in self._places}
        spans = _joined([(self._places[number], number) for number in wanted])
        for pages in self._pool.map(self._fetched, spans):
            self._cached.update(pages)
        room = max(CACHE_BYTES // self.header.page_size, len(numbers) + 1)
        while len(self._cached) > room:
            self._cached.popitem(last=False)

    def _fetched(self, span: list[tuple[_Place, int]]) -> dict[int, bytes]:
        """Return the pages of frames that stand close to each other in one file."""
        first, last = span[0][0], span[-1][0]
        held = self._files[first.file]
        start = 0 if held.body is not None else first.offset
        body = self._get(held.file, first.offset, last.offset + last.size) if held.body is None else held.body
        size = self.header.page_size
        return {
            number: decode_page(
                body[place.offset - start : place.offset - start + place.size], number, size, held.file.key
            )
            for place, number in span
        }

    def _indexed(self, file: LtxFile) -> _Indexed:
        start = max(0, file.size - TAIL_BYTES)
        tail = self._get(file, start, file.size)
        if len(tail) < _INDEX_END_BYTES:
            raise LtxDamaged(file.key, f"it has {len(tail)} bytes")
        header = parse_header(self._get(file, 0, HEADER_BYTES) if start else tail, file.key)
        if (header.min_txid, header.max_txid) != (file.min_txid, file.max_txid):
            raise LtxDamaged(file.key, f"it holds transactions {header.min_txid} to {header.max_txid}")
        length = index_bytes(tail, file.size, file.key)
        end = tail if length <= len(tail) else self._get(file, file.size - length, file.size)
        index = end[len(end) - length : len(end) - _INDEX_END_BYTES]
        places = list(parse_index(index, header, file.key))
        body = None if start else tail
        return _Indexed(file, header, header.end_checksum(file_checksum(tail)), places, body)

    def _get(self, file: LtxFile, start: int, stop: int) -> bytes:
        found = self._store.get(file.key, start=start, stop=stop)
        if found is None or len(found.body) != stop - start or found.info.size != file.size:
            raise LtxDamaged(file.key, "it went away or changed while it was read")
        return found.body


def _check_chain(address: str, files: Sequence[_Indexed]) -> None:
    """Raise `ReplicaGap` where a file does not follow the one before it."""
    for before, after in pairwise(files):
        is_next = after.header.min_txid == before.header.max_txid + 1
        if is_next and not after.header.continues(before.checksum):
            raise ReplicaGap(address, before.header.max_txid, f"{after.file.key} follows another file")


def _latest_places(files: Sequence[_Indexed]) -> dict[int, _Place]:
    """Return where the latest version of each page is, of those that the database still has after the last file."""
    places = dict[int, _Place]()
    page_size = files[-1].header.page_size
    pages = files[-1].header.commit
    for number in reversed(range(len(files))):
        one = files[number]
        if one.header.page_size != page_size:
            break  # what is before has no page that is left
        pages = min(pages, one.header.commit)
        for page, offset, size in one.places:
            if page <= pages and page != lock_page(page_size):
                places.setdefault(page, _Place(number, offset, size))
    return places


def _joined(wanted: Iterable[tuple[_Place, int]]) -> list[list[tuple[_Place, int]]]:
    """Return frames in groups, each fetched by one request."""
    spans = list[list[tuple[_Place, int]]]()
    for place, number in sorted(wanted):
        last = spans[-1][-1][0] if spans else None
        first = spans[-1][0][0] if spans else None
        if (
            last is not None
            and first is not None
            and last.file == place.file
            and 0 <= place.offset - (last.offset + last.size) <= GAP_BYTES
            and place.offset + place.size - first.offset <= RANGE_BYTES
        ):
            spans[-1].append((place, number))
        else:
            spans.append([(place, number)])
    return spans

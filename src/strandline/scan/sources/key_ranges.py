"""Ranges of a bucket's keys: where a listing is cut, and how one range of it is listed.

A bound is a place in the order of the keys' bytes, and need not be a key: a range has the keys from its start on and
before its end. So ranges that follow one another are the listing, each object once, however the bucket changes between
the cut and the listing. A bound that ends with NUL stands behind a key, where a store can be told to begin.

    a store that sorts keys by their bytes    cut at sampled places, each a request; a range is one listing behind a key
    any other store                           cut at folders, level by level, and at sampled places of a folder without
                                              folders; a range is a walk, which lists by delimiter where a bound divides

Stores of other orders promise one only within a folder (`objects.contracts`), so a walk asks for no other. A folder
whose names begin as a bound does ("a/" for the bound "a-b") sorts behind it by bytes and before it by names: whether it
is there is asked.

The client does not tell the "/" at the end of a key ("a/" is told as "a"). Such an object is in the range where the key
with its "/" stands: that the listing is past "a" tells, or a request for "a".

Invariants: places only rise, but for folders that a walk meets late; memory is bounded by `CHILD_ROWS` and by what is
directly in a folder that has folders, too.
"""

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

from strandline.errors import InvalidInput
from strandline.objects import BrowsableObjects, ObjectInfo
from strandline.objects.keys import is_key
from strandline.scan.sources.listing_parts import ListingPart

PROBE_KEYS = 1_000
"""Of a page: so many keys cost one request, and fewer are not cut."""
PROBES_PER_PART = 4
PROBES_AT_ONCE = 8
FOLDERS_ASKED_MAX = 1_000
CHILD_ROWS = 20_000
"""A folder with fewer objects is listed whole, and sorted in memory."""
LATE_FOLDERS_MAX = 16
_GUESSES = bytes(range(0x20, 0x7F)).replace(b"/", b"")
_GUESS_BYTES, _SPAN_BYTES = 8, 64
_LATE = re.compile(rb"(?<=.)[\0\x20-\x2e]", re.DOTALL)


class Placed(NamedTuple):
    """An object of a listing, and the place where it stands."""

    place: bytes
    info: ObjectInfo


def list_range(store: BrowsableObjects, prefix: str, part: ListingPart) -> Iterator[Placed]:
    """Yield the objects of a range below a prefix, which is empty or ends in "/"."""
    return _sorted(store, prefix, part) if store.sorts_bytes else _walked(store, prefix, part)


def key_bounds(store: BrowsableObjects, prefix: str, part: ListingPart, count: int) -> list[bytes]:
    """Return places that cut a range into about so many parts of about equal size, by a bounded number of requests."""
    if store.sorts_bytes:
        found = _sampled(lambda after: store.list_sorted(prefix, after), prefix.encode(), part, count)
    else:
        found = _of_folders(store, prefix, part, count)
        found = found[:: max(1, len(found) // count)]
    return [bound for bound in found if part.start < bound and (part.end is None or bound < part.end)]


def is_a_key(place: bytes) -> bool:
    """Return whether a place is a key, so that a store can be told to begin behind it."""
    try:
        return is_key(place.decode())
    except UnicodeDecodeError:
        return False


# Listing


def _sorted(store: BrowsableObjects, prefix: str, part: ListingPart) -> Iterator[Placed]:
    after = _before(part.start)
    last = after.encode()
    for info in store.list_sorted(prefix, after):
        key = info.key.encode(errors="surrogateescape")
        place = key if key > last else key + b"/"
        if place <= last:
            continue  # told again, by a listing that failed and went on
        if part.end is not None and place < part.end <= key + b"/" and store.head(info.key) is None:
            place = key + b"/"
        last = place
        if part.end is not None and place >= part.end:
            return
        if place >= part.start:
            yield Placed(place, info)


def _walked(store: BrowsableObjects, folder: str, part: ListingPart, *, is_told: bool = False) -> Iterator[Placed]:
    """Yield the objects of a range in a folder, and below it; but for that of the folder's own name, if it is told."""
    inside = folder.encode()
    has_folders = part.start > inside and b"/" in part.start[len(inside) :]
    if part.start <= inside and (part.end is None or (folder and part.end >= inside[:-1] + b"0")):
        whole = list(islice(_objects(store, folder), CHILD_ROWS + 1))
        if len(whole) <= CHILD_ROWS:
            found = sorted((Placed(_place_in(inside, info), info) for info in whole), key=lambda one: one.place)
            yield from (one for one in found if not (is_told and one.place == inside))
            return
        has_folders = any("/" in info.key[len(folder) :] for info in whole)
        del whole
    told = Counter({inside: int(is_told)})
    if not (has_folders or _has_late_folders(store, folder, part.start)):
        for one in _flat(store, folder, part, told):
            if one is None:
                break
            yield one
        else:
            return
    yield from _by_delimiter(store, folder, part, told)


def _by_delimiter(store: BrowsableObjects, folder: str, part: ListingPart, told: Counter[bytes]) -> Iterator[Placed]:
    """Yield the objects of a range in a folder that has folders, but for those that were told."""
    below = store.list_folder(folder)
    entries: list[tuple[bytes, ObjectInfo | None]] = [
        (_place_in(folder.encode(), info), info) for info in below.objects
    ]
    entries += [(name.encode(), None) for name in below.folders]
    for place, entry in sorted(entries, key=lambda one: one[0]):
        if entry is None:
            if part.overlaps(ListingPart(place, place[:-1] + b"0")):
                yield from _walked(store, place.decode(), part, is_told=told[place[:-1]] > 0)
        elif told[place] > 0:
            told[place] -= 1
        elif part.has(place):
            yield Placed(place, entry)


def _flat(store: BrowsableObjects, folder: str, part: ListingPart, told: Counter[bytes]) -> Iterator[Placed | None]:
    """Yield the objects of a folder in their order; None, and no more, where it has a folder."""
    inside = folder.encode()
    after = _before(part.start) if part.start > inside else ""
    try:
        for info in _objects(store, folder, after if len(after) > len(folder) else ""):
            place = _place_in(inside, info)
            if b"/" in place[len(inside) :]:
                yield None
                return
            if part.end is not None and place >= part.end:
                return
            if part.end is not None and part.end <= place + b"/" and (told[place] or store.head(info.key) is None):
                yield None  # it is a folder, of which the object of its own name is told
                return
            if place == inside and told[inside]:
                continue
            if place >= part.start:
                told[place] += 1
                yield Placed(place, info)
    except InvalidInput:  # a listing behind a key met a folder
        yield None


def _objects(store: BrowsableObjects, folder: str, start_after: str = "") -> Iterator[ObjectInfo]:
    """Yield the objects of a folder; one whose name is no key, for which no store is asked, from the listing above."""
    if _is_folder(folder):
        return store.list(folder, start_after=start_after)
    above = folder
    while not _is_folder(above):
        above = above[: above.rstrip("/").rfind("/") + 1]
    return (info for info in store.list(above) if info.key.startswith(folder))


def _is_folder(prefix: str) -> bool:
    """Return whether a store can be asked for what is below a prefix."""
    return not prefix or is_key(prefix[:-1])


def _has_late_folders(store: BrowsableObjects, folder: str, start: bytes) -> bool:
    """Return whether there may be folders that sort behind a place by bytes, and before it by names."""
    inside = folder.encode()
    name = start[len(inside) :] if start.startswith(inside) else b""
    places = [found.start() for found in _LATE.finditer(name)]
    if len(places) > LATE_FOLDERS_MAX:
        return True
    folders = [f"{folder}{name[:at].decode(errors='ignore')}" for at in places]
    return any(next(store.list(f"{one}/"), None) is not None for one in folders if is_key(one))


def _place_in(folder: bytes, info: ObjectInfo) -> bytes:
    key = info.key.encode(errors="surrogateescape")
    return key if key.startswith(folder) else folder  # the object "a/" itself is told as "a"


def _before(start: bytes) -> str:
    """Return the last text behind which all keys from a place on are."""
    return start[:-1].decode(errors="ignore") if start else ""


# Cutting


def _of_folders(store: BrowsableObjects, prefix: str, part: ListingPart, count: int) -> list[bytes]:
    """Return the places of folders, level by level, and sampled ones of folders without folders."""
    bounds, level, asked = set[bytes](), [prefix], 0
    while level and len(bounds) < count and asked < FOLDERS_ASKED_MAX:
        below: list[str] = []
        each = max(2, count // len(level))
        for folder in level[: FOLDERS_ASKED_MAX - asked]:
            if not _is_folder(folder):
                continue
            asked += 1
            page = list(islice(store.list(folder), PROBE_KEYS))
            if len(page) < PROBE_KEYS:
                continue
            if not any("/" in info.key[len(folder) :] for info in page):
                try:
                    bounds |= set(_sampled(_flat_pages(store, folder), folder.encode(), part, each))
                    continue
                except InvalidInput:  # it has a folder
                    pass
            below += store.list_folder(folder).folders
        below = [one for one in below if part.overlaps(ListingPart(one.encode(), one[:-1].encode() + b"0"))]
        bounds |= {place for one in below if part.start < (place := one.encode())}
        level = below
    return sorted(bounds)


def _flat_pages(store: BrowsableObjects, folder: str) -> Callable[[str], Iterator[ObjectInfo]]:
    return lambda after: store.list(folder, start_after=after if len(after) > len(folder) else "")


class _Gap(NamedTuple):
    """Two places with keys between them; `reach` is where a page of keys ends that begins at the first one.

    An `end` that `is_far` may have no key near it.
    """

    weight: float
    start: bytes
    end: bytes
    reach: bytes
    is_far: bool

    def place(self) -> bytes | None:
        """Return a place to ask for: in the middle; to find out where keys end, behind half of what a page shares.

        Where no key can be between, it is the end of the page.
        """
        known, shared = _same(self.start, self.end), _same(self.start, self.reach)
        if self.is_far and shared - known > 1:
            begin = self.start[: (known + 1 + shared) // 2]
            place = begin[:-1] + bytes([min(begin[-1] + 1, 0x7E)])
            if self.start < place < self.end and is_a_key(place):
                return place
        return _between(self.start, self.end) or (self.reach if is_a_key(self.reach) else None)


def _sampled(after: Callable[[str], Iterator[ObjectInfo]], prefix: bytes, part: ListingPart, count: int) -> list[bytes]:
    """Return sampled places: the gap that seems to have most keys is divided next."""
    start, end = max(part.start, prefix), prefix + b"\x7f" if part.end is None else part.end
    gaps: list[_Gap] = []
    bounds: list[bytes] = []

    def page(begin: bytes) -> list[bytes]:
        return [info.key.encode(errors="surrogateescape") for info in islice(after(_before(begin)), PROBE_KEYS)]

    def keep(begin: bytes, stop: bytes, reach: bytes, *, is_far: bool) -> None:
        if reach < stop:
            heapq.heappush(gaps, _Gap(-_weight(begin, stop, reach), begin, stop, reach, is_far))

    first = page(start)
    if len(first) == PROBE_KEYS:
        keep(max(start, first[0]), end, first[-1], is_far=True)
    asked = 0
    with ThreadPoolExecutor(PROBES_AT_ONCE, "strandline-probe") as pool:
        while gaps and len(bounds) < count - 1 and asked < PROBES_PER_PART * count:
            chosen = [heapq.heappop(gaps) for _ in range(min(len(gaps), PROBES_AT_ONCE))]
            divided = [(gap, place) for gap in chosen if (place := gap.place()) is not None]
            asked += len(divided)
            pages = pool.map(page, [place + b"\0" for _, place in divided])
            for (gap, place), found in zip(divided, pages, strict=True):
                is_full = len(found) == PROBE_KEYS and place < found[-1] < gap.end
                keep(gap.start, place, gap.reach, is_far=gap.is_far or not is_full)
                if is_full:
                    bounds.append(place + b"\0")
                    keep(max(place, found[0]), gap.end, found[-1], is_far=place == gap.reach)
    return sorted(set(bounds))


def _weight(start: bytes, end: bytes, reach: bytes) -> float:
    """Return an estimate of the keys between two places, by how far a page reaches."""
    same = _same(start, end)
    first, last, stop = (_number(one[same:], _SPAN_BYTES) for one in (start, reach, end))
    return (stop - first) / max(1, last - first)


def _between(start: bytes, end: bytes) -> bytes | None:
    """Return a place about in the middle that is a key; None if there is none."""
    same = _same(start, end)
    middle = ((_number(start[same:]) + _number(end[same:])) // 2).to_bytes(_GUESS_BYTES)
    plain = bytes(max((one for one in _GUESSES if one <= byte), default=_GUESSES[0]) for byte in middle)
    for length in range(1, _GUESS_BYTES + 1):
        place = start[:same] + plain[:length]
        if start < place < end and is_a_key(place):
            return place
    return None


def _same(one: bytes, other: bytes) -> int:
    """Return the number of bytes with which both begin."""
    return next((at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right), len(one))


def _number(place: bytes, size: int = _GUESS_BYTES) -> int:
    return int.from_bytes(place[:size].ljust(size, b"\0"))

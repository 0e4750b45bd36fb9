"""What a file's content was when it last looked like this, so that files that did not change are not read again.

    key     b"fs1", then the first 16 bytes of BLAKE3 over the absolute path
    value   stat: u64 device, u64 inode, i64 size, i64 mtime, i64 ctime (ns); i64 looked at (ns); then the version

Git's rule for racy timestamps: a file system's clock moves in ticks, so a file can be written again after it was read
and keep its timestamps. An entry therefore counts only where both timestamps are older than the moment of looking by
`RACY_MARGIN_NS`, which is more than the coarsest tick (two seconds, FAT). `ctime` is compared too: `mtime` can be set.

Invariants: an entry that was racy when it was made never counts, not even later, when its timestamps have grown old;
whatever cannot be read as an entry counts as none; nothing here reads a file.
"""

import os
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from blake3 import blake3

from strandline.pipeline.errors import BATCH_ROWS_MAX
from strandline.pipeline.identity import TenantId
from strandline.pipeline.state import Put, ScannerState
from strandline.spark.inputs.source import Source

RACY_MARGIN_NS = 2_000_000_000
_STAT = struct.Struct("<QQqqq")
_TIMES = struct.Struct("<qq")
_LOOKED = struct.Struct("<q")
_KEY_BYTES = 16
_U64 = 2**64 - 1


class Entry(NamedTuple):
    """A file's stat data, when it was looked at, and the version of its content then."""

    stat: bytes
    looked_at_ns: int
    version: bytes

    @property
    def is_racy(self) -> bool:
        """Whether the file may have been written again within the same tick."""
        mtime_ns, ctime_ns = _TIMES.unpack_from(self.stat, _STAT.size - _TIMES.size)
        newest_ns: int = max(mtime_ns, ctime_ns)
        return newest_ns >= self.looked_at_ns - RACY_MARGIN_NS


def format_stat(found: os.stat_result) -> bytes:
    """Return the stat data that change when content does, packed."""
    times = found.st_mtime_ns, found.st_ctime_ns
    return _STAT.pack(found.st_dev & _U64, found.st_ino & _U64, found.st_size, *times)


def format_entry(entry: Entry) -> bytes:
    """Return an entry as it is kept."""
    return entry.stat + _LOOKED.pack(entry.looked_at_ns) + entry.version


def parse_entry(value: bytes) -> Entry | None:
    """Return an entry from its bytes; None for what is none."""
    begin = _STAT.size + _LOOKED.size
    if len(value) <= begin:
        return None
    (looked_at_ns,) = _LOOKED.unpack_from(value, _STAT.size)
    return Entry(value[: _STAT.size], looked_at_ns, value[begin:])


def path_key(path: bytes) -> bytes:
    """Return the key of an absolute path."""
    return b"fs1" + blake3(path).digest()[:_KEY_BYTES]


def remembered(stat: bytes, looked_at_ns: int, version: bytes) -> bytes | None:
    """Return what may be kept of a file that was read; None if it is too fresh."""
    entry = Entry(stat, looked_at_ns, version)
    return None if entry.is_racy else format_entry(entry)


def version_of(value: bytes | None, stat: bytes | None) -> bytes | None:
    """Return the version that an entry gives to a file that looks so; None if it says nothing."""
    entry = None if value is None or stat is None else parse_entry(value)
    if entry is None or entry.stat != stat or entry.is_racy:
        return None
    return entry.version


class StatCache:
    """The cache of one tenant, in the scanner's state."""

    def __init__(self, state: ScannerState, tenant: TenantId) -> None:
        self._state = state
        self._tenant = tenant

    def versions(self, source: Source, locators: Sequence[bytes], stats: Sequence[bytes | None]) -> list[bytes | None]:
        """Return the known versions of items, None where reading has to tell."""
        versions: list[bytes | None] = [None] * len(locators)
        keys = [None if stat is None else source.cache_key(at) for at, stat in zip(locators, stats, strict=True)]
        asked = [place for place, key in enumerate(keys) if key is not None]
        for begin in range(0, len(asked), BATCH_ROWS_MAX):
            places = asked[begin : begin + BATCH_ROWS_MAX]
            values = self._state.multi_get(self._tenant, [key for place in places if (key := keys[place])])
            for place, value in zip(places, values, strict=True):
                versions[place] = version_of(value, stats[place])
        return versions

    @staticmethod
    def puts(source: Source, read: Iterable[tuple[bytes, bytes | None]]) -> list[Put]:
        """Return what to apply to the state after items were read: pairs of locator and `Content.stat`."""
        keyed = ((source.cache_key(locator), value) for locator, value in read)
        return [Put(key, value) for key, value in keyed if key is not None and value is not None]

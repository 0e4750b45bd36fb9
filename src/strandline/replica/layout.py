"""Where the files of a replica are in an object store, as litestream 0.5 has them.

    s3://bucket/path      <level, 4 hex digits>/<first>-<last>.ltx
    file:///path and all others      ltx/<level>/<first>-<last>.ltx

Level 0 holds one file for each transaction (first = last), levels 1 to 3 what compaction made of them, level 9 whole
databases. Names sort by their first transaction, so that a listing starts behind the last one that is known.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from strandline.objects import ObjectStore
from strandline.replica.ltx import format_name, parse_name

LEVEL_SNAPSHOT = 9
LEVELS = tuple(range(10))


class LtxFile(NamedTuple):
    """A file of a replica, as a listing shows it."""

    level: int
    min_txid: int
    max_txid: int
    key: str
    size: int
    modified: datetime

    @property
    def is_whole(self) -> bool:
        """Return whether it holds a whole database, by its name."""
        return self.min_txid == 1


class Layout:
    """The keys of one replica."""

    def __init__(self, store: ObjectStore, prefix: str = "") -> None:
        self._store = store
        self._is_s3 = store.address.startswith(("s3:", "memory:"))
        self._prefix = prefix

    def folder(self, level: int) -> str:
        """Return the folder of a level, with "/" at its end."""
        return f"{self._prefix}{level:04x}/" if self._is_s3 else f"{self._prefix}ltx/{level}/"

    def key(self, level: int, min_txid: int, max_txid: int) -> str:
        """Return the key of a file."""
        return self.folder(level) + format_name(min_txid, max_txid)

    def parse(self, level: int, key: str) -> tuple[int, int] | None:
        """Return the transactions of a key of a level; None for other keys."""
        folder = self.folder(level)
        return parse_name(key[len(folder) :]) if key.startswith(folder) else None

    def metadata(self, timestamp_ms: int) -> Mapping[str, str]:
        """Return what litestream asks S3 for when it restores to a time; elsewhere it takes the file's own."""
        if not self._is_s3:
            return {}
        at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
        return {"litestream-timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z")}

    def files(self, level: int, *, after: int = 0) -> Iterator[LtxFile]:
        """Yield the files of a level whose first transaction is behind `after`, in order."""
        start_after = self.folder(level) + format_name(after, 2**64 - 1) if after else ""
        for info in self._store.list(self.folder(level), start_after=start_after):
            found = self.parse(level, info.key)
            if found is not None:
                yield LtxFile(level, *found, info.key, info.size, info.modified)

    def all_files(self) -> list[LtxFile]:
        """Return the files of all levels."""
        return [file for level in LEVELS for file in self.files(level)]

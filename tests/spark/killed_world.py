"""A corpus that takes some seconds to scan, and what a scan of it leaves behind, in any kind of state."""

import base64
import io
import random
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.journal import Journal
from strandline.objects import StoreUnavailable
from strandline.pipeline.lake import LakeDatabase
from strandline.pipeline.lake.page_cache import PageCache
from strandline.pipeline.lake.stores import open_lake
from strandline.pipeline.stores import open_stores
from strandline.scan.state import tenant_named
from tests.spark.lives import Life
from tests.spark.rows import Rows, rows_of
from tests.waiting import eventually

LEASE_S = 3.0
KEY = "5a" * 32
RULES = """
[[rules]]
id = "alpha"
description = "a made-up token"
regex = '''alpha_[0-9a-f]{16}'''
keywords = ["alpha_"]
[[rules]]
id = "beta"
description = "another made-up token"
regex = '''beta_[0-9a-f]{16}'''
keywords = ["beta_"]
"""
# What tells two runs of one corpus apart is when they ran and how often they began, never what they came to.
_SETTLED = ("items", "statuses", "codes", "not_looked_at", "incomplete", "gaps", "bytes_seen", "findings", "whole")


@dataclass(frozen=True)
class Corpus:
    """Where the corpus is, with rules and a key, and how many items it has."""

    folder: Path
    items: int

    def arguments(self, state: str) -> list[str]:
        """Return the arguments that scan it into a state."""
        folder = self.folder
        inputs = [folder / "files", "--table", f"parquet:{folder / 'table'}", "--journal", folder / "journal"]
        settings = ["--rules", folder / "rules.toml", "--key-file", folder / "key", "--lease-s", LEASE_S]
        return list(map(str, ["scan", *inputs, "--state", state, *settings, "--json", "--quiet"]))


def plant(folder: Path, files: int) -> Corpus:
    """Write a corpus of so many files, a table and a journal; most items take some milliseconds."""
    source = random.Random(files)
    (folder / "files").mkdir(parents=True)
    for number in range(files):
        (folder / "files" / f"file{number:04}").write_bytes(_content(number, source))
    (folder / "files" / "link").symlink_to("file0000")
    (folder / "files" / "broken.zip").write_bytes(_zipped(_text(source, 20))[:-70])
    (folder / "table").mkdir()
    notes = [_text(source, 1) if row % 3 == 0 else "nothing" for row in range(2_000)]
    table = pa.table({"id": range(2_000), "notes": notes})
    pq.write_table(table, folder / "table" / "part.parquet", row_group_size=200)
    with Journal.open(folder / "journal") as journal:
        journal.append([_text(source, 1).encode() for _ in range(3_000)])
    (folder / "rules.toml").write_text(RULES)
    (folder / "key").write_text(KEY)
    (folder / "key").chmod(0o600)
    return Corpus(folder, files + 2 + 10 + 3)


def _content(number: int, source: random.Random) -> bytes:
    text = _text(source, 60)
    if number % 10 == 0:
        return _zipped(text)
    return text.encode("utf-16") if number % 10 == 1 else base64.b64encode(text.encode())


def _text(source: random.Random, lines: int) -> str:
    words = (f"{source.choice(['alpha', 'beta'])}_{source.getrandbits(64):016x}" for _ in range(lines))
    return "\n".join(f"value {word} of many" for word in words)


def _zipped(text: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("inner.txt"), text)
    return packed.getvalue()


class _Counted(NamedTuple):
    items: int


def _counted(pages: PageCache) -> _Counted | None:
    try:
        return _Counted(sum(len(pages.ledger(*scope).table()) for scope in pages.scopes()))
    except StoreUnavailable:
        return None


class Watch:
    """Looks at the stores of a scan from outside."""

    def __init__(self, address: str) -> None:
        self._stores = open_stores(address, migrate=True)
        database = self._stores.database
        self._pages = open_lake(database).cache if isinstance(database, LakeDatabase) else None
        self._ledger = "ledger" if self._stores.database.dialect == "sqlite" else "ledger_entries"

    def committed(self) -> int:
        """Return how many items are in the ledger; a lake whose store starts again is waited for."""
        if self._pages is not None:
            pages = self._pages
            counted = eventually(lambda: _counted(pages), "the store of the lake answers")
            return 0 if counted is None else counted.items
        query = f"SELECT count(*) FROM {self._ledger}"  # noqa: S608 - one of two names
        rows: list[Any] = self._stores.sql.read(lambda connection: connection.execute(query).fetchall())
        return int(rows[0][0])

    def rows(self) -> Rows:
        """Return everything that was stored."""
        return rows_of(self._stores, tenant_named("default"))

    def close(self) -> None:
        """Let go of the connections."""
        self._stores.close()


@contextmanager
def watching(address: str) -> Iterator[Watch]:
    """Look at the stores at an address, which are made."""
    watch = Watch(address)
    try:
        yield watch
    finally:
        watch.close()


def coverage(life: Life) -> dict[str, Any]:
    """Return what a scan came to, without what may differ between two."""
    return {name: life.summary[name] for name in _SETTLED}

"""A source of items that stand in one JSON file, so that every process sees them change."""

import json
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from blake3 import blake3

from strandline.pipeline.identity import ConnectorInstanceId, connector_instance_id
from strandline.protocol.canonical import Plain
from strandline.scan.sources import Content, ItemReader, Part, Problem, Tell
from strandline.scan.sources.source import Row, batches
from strandline.scan.sources.stat_cache import vouching

READS: Counter[str] = Counter()
"""How many times each item was read in this process."""
_STAT = struct.Struct("<QQqqq")
_NOW_NS = 10**18
_lock = threading.Lock()


class Thing(NamedTuple):
    """An item: its text, or its parts; `touched` changes stat data alone, `fresh` makes them untrustworthy.

    `problem` is in the listing, `fails` comes with reading; `hangs_s` and `kills` are for workers that are to die.
    """

    text: str = ""
    parts: list[str] | None = None
    touched: int = 0
    fresh: bool = False
    problem: str | None = None
    fails: str | None = None
    kills: bool = False

    @property
    def stat(self) -> bytes:
        """What the listing knows of it."""
        digest = int.from_bytes(blake3(json.dumps(self).encode()).digest()[:8], "little")
        time_ns = 2 * _NOW_NS if self.fresh else 1
        return _STAT.pack(1, digest, len(self.text), time_ns, time_ns)

    @property
    def version(self) -> bytes:
        """What its content is."""
        return b"blake3:" + blake3(json.dumps([self.text, self.parts]).encode()).digest()


@dataclass(frozen=True)
class Things:
    """Items of one JSON file, by name."""

    file: Path
    name: str = "things"
    knows_versions: bool = False

    tag = "test"
    is_part = False

    @property
    def instance(self) -> ConnectorInstanceId:
        """Which one it is."""
        return connector_instance_id(self.name.encode())

    def plain(self) -> Plain:
        """What decides the listing."""
        return {"name": self.name}

    def write(self, things: dict[str, Thing | str]) -> None:
        """Put items in the place of those that are there."""
        whole = {name: Thing(thing) if isinstance(thing, str) else thing for name, thing in things.items()}
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps({name: thing._asdict() for name, thing in whole.items()}))
        part.replace(self.file)

    def things(self) -> dict[str, Thing]:
        """Return what is there."""
        found = self.file.stat()
        return _parsed(str(self.file), found.st_ino, found.st_mtime_ns)

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield the items by name."""
        rows: list[Row] = []
        for name, thing in sorted(self.things().items()):
            known = b"stat:" + thing.stat if thing.problem else thing.version if self.knows_versions else None
            rows.append((name.encode(), known, len(thing.text), thing.stat, None, thing.problem))
        return batches(rows, tell, {})

    def open(self) -> AbstractContextManager[ItemReader]:
        """Return a reader."""
        return nullcontext(Reader(self))

    def display(self, locator: bytes, extra: bytes | None) -> str:  # noqa: ARG002
        """Return the name."""
        return locator.decode()


@lru_cache(16)
def _parsed(file: str, inode: int, written_ns: int) -> dict[str, Thing]:  # noqa: ARG001 - they tell states of it apart
    found: dict[str, dict[str, Any]] = json.loads(Path(file).read_text())
    return {name: Thing(**thing) for name, thing in found.items()}


@dataclass
class Reader:
    """Reads items, and counts."""

    source: Things

    def read(self, locator: bytes, extra: bytes | None) -> Content:  # noqa: ARG002
        """Return an item as it is now."""
        name = locator.decode()
        with _lock:
            READS[name] += 1
        thing = self.source.things().get(name)
        if thing is None:
            raise Problem.VANISHED.error()
        if thing.fails is not None:
            raise Problem(thing.fails).error(b"stat:" + thing.stat)
        keep = vouching(thing.stat, _NOW_NS)
        if thing.parts is None:
            return Content(thing.version, [Part(thing.text.encode(), name)], len(thing.text), keep)
        parts = (Part(text.encode(), name, address) for address, text in enumerate(thing.parts))
        return Content(thing.version, parts, sum(map(len, thing.parts)), keep)

"""Folds: their cursor beside the log of their bucket, their last repair, the newest artifact beside the log's floor.

Invariants: a fold is opened for reading alone, and closed after each look; nothing is written.
"""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from strandline.artifacts import NoArtifact, PublishedArtifacts, log_continues
from strandline.clock import SystemClock
from strandline.errors import InvalidInput
from strandline.fold import FoldCursor, FoldEntry, existing_backend, holder_of, open_read_only, parse_fold_cursor
from strandline.fold.addresses import connect_bucket
from strandline.fold.last_repair import LastRepair, read_last_repair
from strandline.fold.repair.decisions import decide
from strandline.fold.repair.policy import decided_mode
from strandline.kv import NotSupported, Retention
from strandline.nats import NatsSettings
from strandline.protocol.fold_modes import chosen_mode
from strandline.protocol.repairs import RepairMode
from strandline.web.polling import Need, Polled, Series

EVERY_S = 2.0
TIMEOUT_S = 5.0


@dataclass(frozen=True)
class BucketFacts:
    """The bucket of a fold: its log, and what a watch would do next."""

    name: str
    first: int
    last: int
    behind: int
    next_course: str
    because: str


@dataclass(frozen=True)
class ArtifactFacts:
    """The newest artifact; `alarm` is why no fold can start from it."""

    revision: int | None
    created_unix: int
    entries: int
    alarm: str | None


@dataclass(frozen=True)
class FoldFacts:
    """A fold as it is on disk."""

    backend: str
    revision: int
    mode: str
    bytes: int
    holder: str | None
    repair: LastRepair | None
    bucket: BucketFacts | None
    artifact: ArtifactFacts | None


class FoldPart(Polled[FoldFacts]):
    """A fold at a path, with the bucket that it follows and its artifacts, where they are known."""

    def __init__(
        self, path: Path, bucket: str | None = None, artifacts: str | None = None, nats: NatsSettings | None = None
    ) -> None:
        super().__init__("folds", str(path), self._look, every_s=EVERY_S)
        self.path = path
        self._bucket = bucket
        self._artifacts = artifacts
        self._nats = nats or NatsSettings(timeout_s=TIMEOUT_S)
        self.behind = Series()

    def needs(self, link: str) -> list[Need]:
        """Return what needs a person."""
        facts = self.value
        found = []
        if facts is not None and facts.artifact is not None and facts.artifact.alarm is not None:
            text = f"no new fold of {self.name} can start from an artifact: {facts.artifact.alarm}"
            found.append(Need(text, link, is_urgent=True))
        if facts is not None and facts.bucket is not None and facts.bucket.behind and facts.holder is None:
            text = f"no process keeps {self.name} current: it is {facts.bucket.behind:,} revisions behind"
            found.append(Need(text, link))
        return found

    def get(self, key: bytes) -> FoldEntry | None:
        """Return the entry of a key, or None."""
        reader = open_read_only(self.path)
        try:
            return reader.multi_get([key])[0]
        finally:
            reader.close()

    def _look(self) -> FoldFacts:
        backend = existing_backend(self.path)
        if backend is None:
            raise InvalidInput(f"{self.path}: there is no fold", hint="`strandline fold run` creates one")
        reader = open_read_only(self.path)
        try:
            held = reader.load()
        finally:
            reader.close()
        cursor = parse_fold_cursor(held.cursor) if held else FoldCursor()
        retention: Retention | None = None
        bucket = None
        if self._bucket is not None:
            name, retention = asyncio.run(_retention(self._bucket, self._nats))
            bucket = _bucket(name, retention, cursor, has_data=bool(held and held.has_data))
            self.behind.add(time.monotonic(), bucket.behind)
        return FoldFacts(
            backend=backend.value,
            revision=cursor.revision,
            mode=chosen_mode(cursor.mode, None, seen_evicting=cursor.seen_evicting).name.lower(),
            bytes=_size(self.path),
            holder=holder_of(self.path),
            repair=read_last_repair(self.path),
            bucket=bucket,
            artifact=None if self._artifacts is None else _newest(self._artifacts, retention),
        )


async def _retention(address: str, nats: NatsSettings) -> tuple[str, Retention]:
    async with connect_bucket(address, nats) as store:
        watcher = store.watcher()
        if watcher is None:
            raise NotSupported(f"watching bucket {store.name!r}")
        return store.name, await watcher.retention()


def _bucket(name: str, retention: Retention, cursor: FoldCursor, *, has_data: bool) -> BucketFacts:
    cursor = cursor._replace(mode=decided_mode(cursor, name, None, asked=False))
    decision = decide(cursor, retention, RepairMode.AUTO, SystemClock().now_ns(), has_data=has_data)
    behind = max(0, retention.last_revision - cursor.revision)
    course = decision.course.name.lower().replace("_", " ")
    return BucketFacts(name, retention.first_revision, retention.last_revision, behind, course, decision.reason)


def _newest(address: str, retention: Retention | None) -> ArtifactFacts:
    try:
        with PublishedArtifacts.open(address, is_read_only=True) as artifacts:
            manifest = artifacts.newest()
    except NoArtifact as none:
        return ArtifactFacts(None, 0, 0, none.reason)
    alarm = None
    if retention is not None:
        continuity = log_continues(manifest, retention, SystemClock().now_ns())
        alarm = None if continuity.continues else continuity.reason
    return ArtifactFacts(manifest.rank, int(manifest.created_unix), manifest.entries, alarm)


def _size(path: Path) -> int:
    files = [path, *path.parent.glob(f"{path.name}-*")] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())

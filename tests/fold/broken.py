"""Stores that break one promise each, and the check that must catch it."""

from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from strandline.fold import FoldBatch, FoldEntry, Held, MemoryStore, Pages, PutColumns, Verified
from strandline.fold.chunks import Chunks
from strandline.fold.key_index import CountedSpans
from strandline.fold.log_snapshot import LogSnapshot
from strandline.fold.store import PAGE_ROWS
from strandline.kv import NO_CURSOR, UpdateKind, VersionToken, WatchCursor


class Broken(MemoryStore):
    """Whole; the others derive from it."""


class HoldsSomethingWhenEmpty(Broken):
    def load(self) -> Held | None:
        return super().load() or Held(NO_CURSOR, has_data=False)


class CutsValues(Broken):
    def get(self, key: bytes) -> FoldEntry | None:
        found = super().get(key)
        return found and found._replace(value=found.value[:500])


class PadsVersions(Broken):
    def range(self, prefix: bytes = b"") -> list[FoldEntry]:
        return [found._replace(version=VersionToken(found.version.rjust(8, b"\0"))) for found in super().range(prefix)]


class EndsAtThePrefixPlusOne(Broken):
    def range(self, prefix: bytes = b"") -> list[FoldEntry]:
        return [found for found in super().range(prefix) if not prefix or found.key < prefix + b"\xff"]


class CountsOneMore(Broken):
    def for_each_in_range(self, prefix: bytes, visit: Callable[[FoldEntry], object]) -> int:
        count = super().for_each_in_range(prefix, visit)
        return count + 1 if count else 0


class ReadsWhileItVisits(Broken):
    def for_each_in_range(self, prefix: bytes, visit: Callable[[FoldEntry], object]) -> int:
        keys = [found.key for found in self.range(prefix)]
        for key in keys:
            if found := self.get(key):
                visit(found)
        return len(keys)


class PagesOfNow(Broken):
    def pages(self, prefix: bytes = b"", rows_max: int = 4096) -> Pages:  # noqa: ARG002 - rows come one by one
        def columns() -> Generator[PutColumns]:
            for key in [found.key for found in self.range(prefix)]:
                if found := self.get(key):
                    yield PutColumns(*(pa.array([part], pa.binary()) for part in found))

        return Pages(self.cursor(), columns())


class ForgetsTheCursor(Broken):
    def cursor(self) -> WatchCursor:
        return NO_CURSOR


class NoCursorIsACursor(Broken):
    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        super().apply(batch, cursor or WatchCursor(bytes(8)))


class FirstWriteWins(Broken):
    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        columns = batch.keys[::-1], batch.values[::-1], batch.versions[::-1]
        super().apply(FoldBatch(*columns, None if batch.kinds is None else batch.kinds[::-1]), cursor)


class DeletesNothing(Broken):
    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        if batch.kinds is None or not (batch.kinds == UpdateKind.DELETE).any():
            super().apply(batch, cursor)


class TakesAPurgeForAPut(Broken):
    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        kinds = batch.kinds
        if kinds is not None:
            kinds = kinds.copy()
            kinds[kinds == UpdateKind.PURGE] = UpdateKind.PUT
        super().apply(FoldBatch(batch.keys, batch.values, batch.versions, kinds), cursor)


class SkipsEmptyBatches(Broken):
    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        if len(batch):
            super().apply(batch, cursor)


class EmptyIsMissing(Broken):
    def get(self, key: bytes) -> FoldEntry | None:
        found = super().get(key)
        return found if found and found.value else None


class AnswersInOrderOfKeys(Broken):
    def multi_get(self, keys: Sequence[bytes]) -> list[FoldEntry | None]:
        return super().multi_get(sorted(keys))


class SettlesTooMuch(Broken):
    def settle(self) -> None:
        kept = self.range()[1:]
        cursor = self.cursor()
        super().__init__()
        keys, values, versions, _ = zip(*kept, strict=True)
        self.apply(FoldBatch(keys, values, versions), cursor)


class TakesSnapshotsLate(Broken):
    def snapshot(self, beside: Path) -> LogSnapshot:
        taken = super().snapshot

        class Late(LogSnapshot):
            def rows(self, rows_max: int = PAGE_ROWS) -> Iterator[PutColumns]:
                return taken(beside).rows(rows_max)

        now = taken(beside)
        return Late(now.cursor(), Chunks(), CountedSpans([], []))


class KeepsTheLongerValue(Broken):
    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        before = [self.get(key) for key in batch.keys]
        values = [
            max(value, found.value if found else b"", key=len)
            for value, found in zip(batch.values, before, strict=True)
        ]
        super().apply(FoldBatch(batch.keys, values, batch.versions, batch.kinds), cursor)


class HashesNothing(Broken):
    def verify(self) -> Verified:
        return super().verify()._replace(digest=bytes(32))


class CutsCursors(Broken):
    def apply(self, batch: FoldBatch, cursor: WatchCursor) -> None:
        super().apply(batch, WatchCursor(cursor[:255]))


class StaysOpen(Broken):
    def close(self) -> None:
        """Do nothing."""


CAUGHT_BY: dict[type[Broken], str] = {
    HoldsSomethingWhenEmpty: "an_empty_store_holds_nothing",
    CutsValues: "round_trip",
    PadsVersions: "versions_of_every_length_round_trip",
    EndsAtThePrefixPlusOne: "get_range",
    CountsOneMore: "for_each_in_range",
    ReadsWhileItVisits: "a_visit_sees_one_moment",
    PagesOfNow: "pages_are_a_range_as_columns_of_one_moment",
    ForgetsTheCursor: "cursor_resume",
    NoCursorIsACursor: "no_cursor_leaves_the_cursor",
    FirstWriteWins: "last_write_in_a_batch_wins",
    DeletesNothing: "deletes_remove_keys",
    TakesAPurgeForAPut: "purge",
    SkipsEmptyBatches: "empty_batch_advances_cursor",
    EmptyIsMissing: "empty_value_round_trip",
    AnswersInOrderOfKeys: "multi_get_matches_get",
    SettlesTooMuch: "settle_preserves_state",
    TakesSnapshotsLate: "a_snapshot_keeps_its_moment",
    KeepsTheLongerValue: "pure_fold_property",
    HashesNothing: "verify_returns_the_digest_of_the_state",
    CutsCursors: "what_cannot_be_kept_is_refused_whole",
    StaysOpen: "a_closed_store_answers_nothing",
}

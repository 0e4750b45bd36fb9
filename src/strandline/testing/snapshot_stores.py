"""The contract of `SnapshotStore` as checks, each a function of an empty store that can be closed and opened again.

Every sentence of `strandline.fold.store` that one process can see has a check here. Only a crash can show that the
cursor is never ahead of the data: the store's own tests kill it at every system call.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np

from strandline.errors import Closed, InvalidInput
from strandline.fold import FoldBatch, FoldEntry, Held, MemoryStore, PutColumns, SnapshotStore, Verified, open_read_only
from strandline.fold.paths import COPY_NAME
from strandline.kv import NO_CURSOR, UpdateKind, VersionToken, WatchCursor, format_cursor, format_revision
from strandline.testing.contract import expect, named, refuses, same

_ROUNDS = 40
_SEED = 11
_KEYS = [
    b"a",
    b"a.b",
    b"a.b.c",
    b"a/",
    b"b",
    b"b\x00",
    b"b\xff",
    b"b\xff\xff",
    b"c\xff",
    "größe".encode(),
    b"\xff",
    b"\xff\xff",
]


class CheckedSnapshotStore:
    """A store under check, and the function that closes it and opens it again where it was."""

    def __init__(self, store: SnapshotStore, reopen: Callable[[], SnapshotStore]) -> None:
        self.store = store
        self._reopen = reopen

    def again(self) -> SnapshotStore:
        """Close the store and open it again; a store that forgets with its object returns itself."""
        self.store = self._reopen()
        return self.store

    def twice(self) -> Iterator[SnapshotStore]:
        """Yield the store as it is, then opened again."""
        yield self.store
        yield self.again()


SnapshotStoreCheck = Callable[[CheckedSnapshotStore], None]
"""Takes an empty store."""
OpenSnapshotStore = Callable[[], AbstractContextManager[CheckedSnapshotStore]]
"""Opens an empty store."""


def changes(revision: int, *rows: tuple[bytes, bytes | None], purged: bool = False) -> tuple[FoldBatch, WatchCursor]:
    """Return rows as a batch whose revisions go up from `revision`, and its cursor; None as value is a delete."""
    gone = UpdateKind.PURGE if purged else UpdateKind.DELETE
    kinds = np.array([gone if value is None else UpdateKind.PUT for _, value in rows], np.uint8)
    versions = [format_revision(revision + at) for at in range(len(rows))]
    batch = FoldBatch([key for key, _ in rows], [value or b"" for _, value in rows], versions, kinds)
    return batch, format_cursor(revision + max(0, len(rows) - 1))


def entry(key: bytes, value: bytes, revision: int) -> FoldEntry:
    """Return an entry."""
    return FoldEntry(key, value, format_revision(revision))


def everything(store: SnapshotStore) -> tuple[Held | None, list[FoldEntry], WatchCursor]:
    """Return the complete state of a store."""
    return store.load(), store.range(), store.cursor()


def an_empty_store_holds_nothing(checked: CheckedSnapshotStore) -> None:
    """The results for missing keys, before and after reopening."""
    for store in checked.twice():
        same("load", store.load(), None)
        same("the cursor", store.cursor(), NO_CURSOR)
        same("a missing key", store.get(b"a"), None)
        same("missing keys", store.multi_get([b"a", b"b"]), [None, None])
        same("no keys", store.multi_get([]), [])
        same("a range", store.range(), [])
        same("the entries visited", store.for_each_in_range(b"", _never), 0)


def round_trip(checked: CheckedSnapshotStore) -> None:
    """Keys, values, versions and the cursor come back, byte for byte, also when it is opened again."""
    rows = [(key, bytes([at]) * at * 100) for at, key in enumerate(_KEYS)]
    checked.store.apply(*changes(1, *rows))
    for store in checked.twice():
        for at, (key, value) in enumerate(rows):
            same(f"the entry of {key!r}", store.get(key), entry(key, value, at + 1))
        same("load", store.load(), Held(format_cursor(len(rows)), has_data=True))
        same("a key that is only the beginning of others", store.get(b"a."), None)


def versions_of_every_length_round_trip(checked: CheckedSnapshotStore) -> None:
    """A version is opaque: ten bytes, one zero byte, and none at all are kept as they are."""
    versions = [b"", b"\x00", b"\x00" * 10, b"\xff" * 10, b"12345678"]
    keys = [b"key %d" % at for at in range(len(versions))]
    checked.store.apply(FoldBatch(keys, keys, versions), WatchCursor(b"\x00" * 255))
    store = checked.again()
    wanted = [FoldEntry(key, key, VersionToken(version)) for key, version in zip(keys, versions, strict=True)]
    same("the entries", store.range(), wanted)
    same("a cursor of 255 bytes", store.cursor(), b"\x00" * 255)


def get_range(checked: CheckedSnapshotStore) -> None:
    """A range is the keys that begin so, in the order of their bytes, whatever bytes these are."""
    checked.store.apply(*changes(1, *((key, key) for key in reversed(_KEYS))))
    for store in checked.twice():
        for prefix in (b"", b"a", b"a.", b"b", b"b\xff", b"c", b"\xff", b"\xff\xff", b"zz"):
            wanted = sorted(key for key in _KEYS if key.startswith(prefix))
            same(f"the keys that begin with {prefix!r}", [found.key for found in store.range(prefix)], wanted)
    store.apply(*changes(20, (b"a.a", b"new"), (b"a.b", None)))
    same("the keys after a change", [found.key for found in store.range(b"a.")], [b"a.a", b"a.b.c"])


def for_each_in_range(checked: CheckedSnapshotStore) -> None:
    """It visits what `range` returns, in that order, and counts it."""
    store = checked.store
    store.apply(*changes(1, *((key, key) for key in _KEYS)))
    for prefix in (b"", b"b", b"\xff", b"zz"):
        seen: list[FoldEntry] = []
        count = store.for_each_in_range(prefix, seen.append)
        same(f"what is visited under {prefix!r}", seen, store.range(prefix))
        same("the count", count, len(seen))


def a_visit_sees_one_moment(checked: CheckedSnapshotStore) -> None:
    """A batch that is applied during a visit is not seen by it; what a visitor raises ends it and nothing else."""
    store = checked.store
    store.apply(*changes(1, (b"a", b"1"), (b"b", b"1"), (b"c", b"1")))
    seen: list[FoldEntry] = []

    def visit(found: FoldEntry) -> None:
        if not seen:
            store.apply(*changes(4, (b"b", b"2"), (b"c", None), (b"d", b"2")))
        seen.append(found)

    store.for_each_in_range(b"", visit)
    same("what was visited", [(found.key, found.value) for found in seen], [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    same("what is there now", [found.key for found in store.range()], [b"a", b"b", b"d"])
    try:
        store.for_each_in_range(b"", _never)
    except _Visited:
        same("what is there after a visit that failed", store.get(b"b"), entry(b"b", b"2", 4))
    else:
        expect(condition=False, problem="what a visitor raises should be passed on")


def pages_are_a_range_as_columns_of_one_moment(checked: CheckedSnapshotStore) -> None:
    """They hold what `range` returns, in columns of no more rows than asked for, and the cursor that belongs to it."""
    checked.store.apply(*changes(1, *((key, key) for key in _KEYS)))
    for store in checked.twice():
        for prefix in (b"", b"b", b"\xff", b"zz"):
            for rows_max in (1, 5, 4096):
                pages = store.pages(prefix, rows_max)
                same("the cursor", pages.cursor, format_cursor(len(_KEYS)))
                found = list(pages.columns)
                expect(all(len(rows.keys) <= rows_max for rows in found), "a page has more rows than were asked for")
                same(f"the rows below {prefix!r}", [row for rows in found for row in _rows(rows)], store.range(prefix))
    store, before = checked.store, checked.store.range()
    pages = store.pages(b"", 2)
    first = next(pages.columns)
    store.apply(*changes(20, (_KEYS[0], b"2"), (_KEYS[-1], None), (b"zzz", b"2")))
    same("the rows of one moment", [row for rows in (first, *pages.columns) for row in _rows(rows)], before)
    same("its cursor", pages.cursor, format_cursor(len(_KEYS)))
    left = store.pages(b"", 1)
    next(left.columns)
    left.columns.close()
    same("what is there after pages that were not all taken", store.get(b"zzz"), entry(b"zzz", b"2", 22))


def cursor_resume(checked: CheckedSnapshotStore) -> None:
    """Opened again, it stands at the cursor of the last batch, with the data of all of them."""
    for revision in range(1, 6):
        checked.store.apply(*changes(revision, (b"key %d" % revision, b"x")))
        same("the cursor", checked.again().cursor(), format_cursor(revision))
        same("the keys", len(checked.store.range()), revision)


def no_cursor_leaves_the_cursor(checked: CheckedSnapshotStore) -> None:
    """A batch of unknown versions is data under the old cursor; without an old one, there is data and no cursor."""
    store = checked.store
    store.apply(changes(1, (b"a", b"1"))[0], NO_CURSOR)
    same("load", checked.again().load(), Held(NO_CURSOR, has_data=True))
    store = checked.store
    store.apply(*changes(7, (b"a", b"2")))
    store.apply(changes(8, (b"a", b"3"))[0], NO_CURSOR)
    same("the cursor", checked.again().cursor(), format_cursor(7))
    same("the value", checked.store.get(b"a"), entry(b"a", b"3", 8))


def last_write_in_a_batch_wins(checked: CheckedSnapshotStore) -> None:
    """Rows of one key count in their order."""
    rows = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None), (b"c", None), (b"c", b"3"), (b"d", b"1")]
    checked.store.apply(*changes(1, *rows))
    wanted = [entry(b"a", b"2", 3), entry(b"c", b"3", 6), entry(b"d", b"1", 7)]
    for store in checked.twice():
        same("the entries", store.range(), wanted)


def deletes_remove_keys(checked: CheckedSnapshotStore) -> None:
    """A deleted key is missing everywhere; deleting a missing key changes nothing but the cursor."""
    checked.store.apply(*changes(1, (b"a", b"1"), (b"b", b"1")))
    checked.store.apply(*changes(3, (b"a", None), (b"never there", None)))
    for store in checked.twice():
        same("the deleted key", (store.get(b"a"), store.multi_get([b"a"])), (None, [None]))
        same("the entries", store.range(), [entry(b"b", b"1", 2)])
        same("the cursor", store.cursor(), format_cursor(4))


def purge(checked: CheckedSnapshotStore) -> None:
    """A purge removes a key as a delete does."""
    checked.store.apply(*changes(1, (b"a", b"1"), (b"b", b"1")))
    checked.store.apply(*changes(3, (b"a", None), purged=True))
    same("the entries", checked.again().range(), [entry(b"b", b"1", 2)])


def empty_batch_advances_cursor(checked: CheckedSnapshotStore) -> None:
    """A cursor alone is something; a fold without keys and with a cursor is not an empty one."""
    checked.store.apply(FoldBatch(), format_cursor(3))
    same("load", checked.again().load(), Held(format_cursor(3), has_data=False))
    checked.store.apply(FoldBatch(), NO_CURSOR)
    same("the cursor after nothing at all", checked.again().cursor(), format_cursor(3))


def empty_value_round_trip(checked: CheckedSnapshotStore) -> None:
    """An empty value is a value."""
    checked.store.apply(*changes(1, (b"a", b"")))
    for store in checked.twice():
        same("the entry", store.get(b"a"), entry(b"a", b"", 1))
        same("load", store.load(), Held(format_cursor(1), has_data=True))


def multi_get_matches_get(checked: CheckedSnapshotStore) -> None:
    """Many answers are the single ones, in the order asked for, repeated keys and missing ones too."""
    store = checked.store
    store.apply(*changes(1, *((b"key %d" % at, b"%d" % at) for at in range(300))))
    keys = [b"key %d" % (at * 7 % 400) for at in range(500)]
    same("the answers", store.multi_get(keys), [store.get(key) for key in keys])


def settle_preserves_state(checked: CheckedSnapshotStore) -> None:
    """Settling changes no answer, now or when it is opened again, and the store can be written to afterwards."""
    _random_batches(checked.store, 1, _ROUNDS)
    before = everything(checked.store)
    checked.store.settle()
    same("the state after settling", everything(checked.store), before)
    same("the state when opened again", everything(checked.again()), before)
    checked.store.apply(*changes(10_000, (b"after", b"x")))
    same("a later write", checked.again().get(b"after"), entry(b"after", b"x", 10_000))


def a_snapshot_keeps_its_moment(checked: CheckedSnapshotStore) -> None:
    """Rows and cursor of a snapshot stay what they were, and its copy is a fold with both."""
    with TemporaryDirectory(prefix="strandline-snapshot-") as folder:
        for round_, store in enumerate(checked.twice(), 1):
            _random_batches(store, round_, round_ + 5)
            held, entries, cursor = everything(store)
            snapshot = store.snapshot(Path(folder) / f"moment-{round_}")
            try:
                store.apply(*changes(10_000 * round_, (b"later", b"x"), (entries[0].key, None), (entries[1].key, b"y")))
                found = [row for page in snapshot.rows(7) for row in _rows(page)]
                same("the rows", found, entries)
                same("the cursor", (snapshot.cursor(), held is not None), (cursor, True))
                snapshot.copy_to(Path(folder) / f"copy-{round_}")
            finally:
                snapshot.close()
                snapshot.close()
            with closing(open_read_only(Path(folder) / f"copy-{round_}" / COPY_NAME)) as copy:
                same("the copy", (copy.range(), copy.cursor()), (entries, cursor))
        same("what is left of the moments", sorted(path.name for path in Path(folder).glob("moment-*")), [])


def pure_fold_property(checked: CheckedSnapshotStore) -> None:
    """The state is a function of what was applied: in other batches, with repetitions, it is the same."""
    _random_batches(checked.store, 1, _ROUNDS)
    _random_batches(checked.store, _ROUNDS // 2, _ROUNDS)
    checked.again()
    twin = MemoryStore()
    _random_batches(twin, 1, _ROUNDS)
    same("the state", everything(checked.store), everything(twin))


def verify_returns_the_digest_of_the_state(checked: CheckedSnapshotStore) -> None:
    """Every backend has the same digest for the same state, and another one for another state."""
    twin = MemoryStore()
    seen: set[Verified] = set()
    for revision in range(1, 6):
        for store in (checked.store, twin):
            _random_batches(store, revision, revision + 1)
        same("what verify returns", checked.store.verify(), twin.verify())
        seen.add(checked.store.verify())
    same("the digests of five states", len({found.digest for found in seen}), 5)
    same("the digest when opened again", checked.again().verify(), twin.verify())


def what_cannot_be_kept_is_refused_whole(checked: CheckedSnapshotStore) -> None:
    """A cursor that is too long is refused before anything is done, and the store goes on."""
    batch, _ = changes(1, (b"a", b"1"))
    refuses("a cursor of 256 bytes", InvalidInput, checked.store.apply, batch, WatchCursor(bytes(256)))
    same("load", checked.store.load(), None)
    checked.store.apply(batch, format_cursor(1))
    same("the entry", checked.again().get(b"a"), entry(b"a", b"1", 1))


def a_closed_store_answers_nothing(checked: CheckedSnapshotStore) -> None:
    """Every call is `Closed`, and closing twice is harmless."""
    store = checked.store
    store.apply(*changes(1, (b"a", b"1")))
    store.close()
    store.close()
    refuses("load", Closed, store.load)
    refuses("apply", Closed, store.apply, *changes(2, (b"a", b"2")))
    refuses("get", Closed, store.get, b"a")
    refuses("multi_get", Closed, store.multi_get, [b"a"])
    refuses("range", Closed, store.range)
    refuses("for_each_in_range", Closed, store.for_each_in_range, b"", _never)
    refuses("pages", Closed, store.pages)
    refuses("cursor", Closed, store.cursor)
    refuses("settle", Closed, store.settle)
    refuses("snapshot", Closed, store.snapshot, Path("never-made"))
    refuses("verify", Closed, store.verify)


def _rows(columns: PutColumns) -> list[FoldEntry]:
    keys, values, versions = (column.to_pylist() for column in columns)
    return [FoldEntry(*row) for row in zip(keys, values, versions, strict=True)]


class _Visited(Exception):
    """Raised by a visitor that should not have been called, or to end a visit."""


def _never(found: FoldEntry) -> None:
    raise _Visited(found.key)


def _random_batches(store: SnapshotStore, first: int, end: int) -> None:
    """Apply the batches of some rounds, each of which is always the same."""
    for round_ in range(first, end):
        random = Random(_SEED * round_)  # noqa: S311 - the same in every run, and no secret
        rows = [
            (b"key %d" % random.randrange(50), random.choice([None, b"", random.randbytes(random.randrange(200))]))
            for _ in range(random.randrange(30))
        ]
        store.apply(*changes(round_ * 100, *rows, (b"round %d" % (round_ % 7), b"%d" % round_)))


SNAPSHOT_STORE_CHECKS: tuple[SnapshotStoreCheck, ...] = (
    an_empty_store_holds_nothing,
    round_trip,
    versions_of_every_length_round_trip,
    get_range,
    for_each_in_range,
    a_visit_sees_one_moment,
    pages_are_a_range_as_columns_of_one_moment,
    cursor_resume,
    no_cursor_leaves_the_cursor,
    last_write_in_a_batch_wins,
    deletes_remove_keys,
    purge,
    empty_batch_advances_cursor,
    empty_value_round_trip,
    multi_get_matches_get,
    settle_preserves_state,
    a_snapshot_keeps_its_moment,
    pure_fold_property,
    verify_returns_the_digest_of_the_state,
    what_cannot_be_kept_is_refused_whole,
    a_closed_store_answers_nothing,
)
"""Every promise of the contract, as a function whose name says what must hold."""


def check_snapshot_store(open_store: OpenSnapshotStore) -> None:
    """Run every check over a store of its own; `ContractBroken` names the first that fails."""
    for check in SNAPSHOT_STORE_CHECKS:
        with named(check.__name__), open_store() as checked:
            check(checked)

"""A fold that a streaming query keeps current: each batch is applied with its cursor, in one step, in this process.

    readStream      changes from the fold's cursor on, through the format `strandline`
    foreachBatch    the last write of each key and the cursor after it: one `apply`

Invariants: the cursor lives with the fold and nowhere else. Spark's checkpoint is thrown away: every start makes a new
one and begins behind the fold's cursor, so that batches which Spark repeats or forgets change nothing. A fold of
another stream or of other keys, one ahead of its log, and one with keys and no cursor are refused. The follower holds
the fold's lock. Values that left the bucket leave a mirror between two batches, when it holds all that the bucket does.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
import pyarrow as pa

from strandline.errors import FormatError, InvalidInput
from strandline.fold import FoldBatch, FoldEntry, SnapshotStore
from strandline.fold.backends import Backend, open_fold
from strandline.fold.columns import version_column
from strandline.fold.cursor import UNKNOWN, FoldCursor, format_fold_cursor, parse_fold_cursor
from strandline.fold.errors import ScopeChanged
from strandline.fold.records import STORED_VERSION_BYTES_MAX, join_version
from strandline.fold.repair.decisions import complete_from
from strandline.fold.repair.policy import decided_mode
from strandline.fold.scopes import StoredScope
from strandline.fold.watch.observation import LOOK_S, Observation
from strandline.fold.watch.sweeper import PAUSE_FACTOR, swept_entries
from strandline.kv import UpdateKind, format_revision
from strandline.kv.nats.bucket_api import NO_MESSAGE
from strandline.kv.nats.layout import read_prefix, retention_of
from strandline.kv.nats.messages import StoredMessage, parse_stored
from strandline.nats.errors import ServerRefused
from strandline.nats.streams import StreamState
from strandline.protocol.fold_modes import FoldMode, follows_expiry
from strandline.protocol.windows import is_other_log
from strandline.spark.ephemeral_query import EphemeralQuery
from strandline.spark.errors import RecordsMissing
from strandline.spark.folds.scope import first_cursor, options_of, stored_scope
from strandline.spark.streams.columns import KINDS
from strandline.spark.streams.log import POSITIONS, check_retention, open_session
from strandline.spark.streams.options import StreamOptions
from strandline.spark.streams.pull_consumer import Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS_PER_TRIGGER = 250_000


def keep_current(
    spark: "SparkSession",
    options: Mapping[str, str],
    path: Path | str,
    backend: Backend | None = None,
    *,
    mode: FoldMode | None = None,
    follow: bool = True,
    records_per_trigger: int = RECORDS_PER_TRIGGER,
) -> "FoldFollower":
    """Keep the fold at `path` current with a stream or bucket until it is stopped; without `follow`, until it is.

    The options are those of a read. Use it in a `with` statement. A fold that is not there is begun with everything
    that the stream holds; for much, `fold_build` is faster. `mode` is what a new fold is to its bucket.
    """
    if ".connect." in type(spark).__module__:
        raise InvalidInput(
            "a fold is kept in this process, and with Spark Connect a batch is applied in another",
            hint="use a session of strandline.spark.session(), or any that is not remote",
        )
    wanted = options_of(options)
    with open_session(wanted) as session:
        check_retention(session.state(), wanted)
        store = open_fold(path, backend)
        try:
            mark = stored_cursor(
                store, session.state(), wanted, mode
            )  # asked anew: until it was locked, the fold may have moved
            kept = FoldFollower(store, wanted, mark)
            kept.start(spark, options, records_per_trigger, follow=follow)
        except BaseException:
            store.close()
            raise
    return kept


def stored_cursor(
    store: SnapshotStore, state: StreamState, options: StreamOptions, mode: FoldMode | None = None
) -> FoldCursor:
    """Return the fold's cursor; refuse a fold of another stream or of other keys, and one that lacks its cursor."""
    scope, mark, held = stored_scope(options), parse_fold_cursor(store.cursor()), store.load()
    chosen = decided_mode(mark, options.target.name, mode, asked=False)
    if not mark.revision:
        if held is not None and held.has_data:
            raise _unfit(options, "the fold has keys and no cursor, so what it lacks is unknown")
        return _begun(state, options, chosen)
    if mark.identity not in (UNKNOWN, state.identity):
        raise _unfit(options, "the fold is of another stream, or it was made again")
    if is_other_log(mark.revision, state.last, same_identity=True):
        raise _unfit(options, f"the log ends at {state.last}, before the fold's {mark.revision}")
    if mark.scope not in (UNKNOWN, scope, _digest(scope)):
        raise ScopeChanged(options.target.name, ", ".join(options.filters) or "all keys")
    return mark._replace(
        seen_evicting=mark.seen_evicting or state.evicts_current_values,
        identity=state.identity,
        scope=scope,
        since_ns=0,
        mode=chosen,
        seen_dropping=mark.seen_dropping or state.drops_current_values,
    )


def _begun(state: StreamState, options: StreamOptions, mode: FoldMode) -> FoldCursor:
    """Return the cursor of a new fold; an archive is complete from where the log begins, or not before its end."""
    mark = first_cursor(state, options, mode)
    return mark if mode is FoldMode.MIRROR else mark._replace(floor=complete_from(retention_of(state)))


def _digest(scope: StoredScope) -> bytes:
    return scope if isinstance(scope, bytes) else scope.digest


def _unfit(options: StreamOptions, problem: str) -> RecordsMissing:
    hint = "`strandline fold repair` repairs the fold of a bucket; or build it again at another path with fold_build"
    return RecordsMissing(str(options.target), problem, hint)


class FoldFollower:
    """A fold that a query keeps current; `revision` is its position, `applied` counts this query's changes."""

    def __init__(self, store: SnapshotStore, options: StreamOptions, mark: FoldCursor) -> None:
        """Use `keep_current`."""
        self.store = store
        self.applied = 0
        self._options = options
        self._mark = mark
        self._query = EphemeralQuery()
        self._sweep_after = 0.0

    @property
    def revision(self) -> int:
        """Return the revision up to which the fold holds everything."""
        return self._mark.revision

    def start(
        self, spark: "SparkSession", options: Mapping[str, str], records_per_trigger: int, *, follow: bool
    ) -> None:
        """Start the query."""
        given = {**options, "maxRecordsPerTrigger": str(records_per_trigger)}
        if self._mark.revision:
            given["startingOffset"] = str(self._mark.revision + 1)
        names = (
            "key, revision, kind, value, expires"
            if self._options.target.kind == "bucket"
            else "subject, sequence, data"
        )
        types = {
            "revision": "BIGINT",
            "sequence": "BIGINT",
            "value": "BINARY",
            "data": "BINARY",
            "expires": "TIMESTAMP",
        }
        ddl = ", ".join(f"{name} {types.get(name, 'STRING')}" for name in names.split(", "))
        stream = spark.readStream.format("strandline").schema(ddl).options(**given).load()
        self._query.start(stream, self._apply, follow=follow)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the query has ended; one that follows ends only by `stop`. Raises the error that ended it."""
        return self._query.wait(timeout_s)

    def stop(self) -> None:
        """End the query and close the fold; twice is harmless."""
        try:
            self._query.stop()
        finally:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _apply(self, batch: "DataFrame", number: int) -> None:
        """Apply a batch and the cursor after it; rows that are not behind the cursor were applied before."""
        changes, last = changes_of(batch.toArrow(), self._mark.revision, self._mark.mode)
        last = max(last, self._planned_end(number))
        if last > self._mark.revision:
            expires = any(len(version) == STORED_VERSION_BYTES_MAX for version in changes.versions)
            mark = self._mark._replace(revision=last, has_deadlines=self._mark.has_deadlines or expires)
            self.store.apply(changes, format_fold_cursor(mark))
            self._mark = mark
            self.applied += len(changes)
        self._sweep()

    def _sweep(self) -> None:
        """Remove entries that left the bucket, if the fold is complete; the next sweep waits, longer after a scan."""
        if time.monotonic() < self._sweep_after or self._options.target.kind != "bucket":
            return
        began = time.monotonic()
        with open_session(self._options) as session:
            state = session.state()
            left = swept_entries(self.store, self._mark, Observation(retention_of(state), time.time_ns()))
            changes = None if left is None else sweep_of(session, state, left)
        if changes is not None:
            is_mirror = self._mark.mode is FoldMode.MIRROR
            mark = self._mark._replace(floor=max(self._mark.floor, state.first)) if is_mirror else self._mark
            self.store.apply(changes, format_fold_cursor(mark))
            self._mark = mark
        ended = time.monotonic()
        self._sweep_after = ended + max(LOOK_S, PAUSE_FACTOR * (ended - began))

    def _planned_end(self, number: int) -> int:
        """Return the last revision of a batch's range, which may lie behind its last row; 0 where it is unknown.

        Spark hands a batch over without its range, and has written it down before. Without it the cursor would stand
        still while others' keys are written, until the bucket has forgotten where it stands.
        """
        try:
            lines = (self._query.checkpoint / "offsets" / str(number)).read_text().splitlines()
            end = POSITIONS.parse(json.loads(lines[-1]))
        except (OSError, ValueError, IndexError, FormatError):
            return 0
        return (end.offset or 1) - 1


def sweep_of(session: Session, state: StreamState, left: Sequence[FoldEntry]) -> FoldBatch:
    """Return the changes for entries that left their bucket: where it keeps a history, the value before returns.

    What the server still tells, because it removes a little late, is found by the next sweep.
    """
    keys, values, versions, kinds = [], [], [], []
    for entry in left:
        last = last_of(session, state, entry.key) if entry.expires_ns and state.per_subject_max != 1 else None
        version = b"" if last is None else format_revision(last.revision)
        if version == entry.version:
            continue
        is_back = last is not None and last.kind is UpdateKind.PUT
        keys.append(entry.key)
        values.append(last.value if last is not None and is_back else b"")
        versions.append(join_version(version, last.expires_ns) if last is not None and is_back else b"")
        kinds.append(UpdateKind.PUT if is_back else UpdateKind.DELETE)
    return FoldBatch(keys, values, versions, np.array(kinds, np.uint8))


def last_of(session: Session, state: StreamState, key: bytes) -> StoredMessage | None:
    """Return the last message of a key, None if there is none."""
    subject = f"{read_prefix(state)}{key.decode(errors='surrogateescape')}"
    try:
        return parse_stored(session.call_raw(f"STREAM.MSG.GET.{state.name}", {"last_by_subj": subject}))
    except ServerRefused as refused:
        if refused.code != NO_MESSAGE:
            raise
        return None


def changes_of(rows: pa.Table, after: int, mode: FoldMode = FoldMode.MIRROR) -> tuple[FoldBatch, int]:
    """Return the rows behind a revision as changes of a fold, by revision, and the highest revision among them.

    To an archive a marker of a value that expired is no change; of a marker `expires` is when that was.
    """
    is_bucket = "kind" in rows.schema.names
    names = ("key", "revision", "value") if is_bucket else ("subject", "sequence", "data")
    revisions = rows[names[1]].to_numpy()
    chosen = np.flatnonzero(revisions > after)
    if not len(chosen):
        return FoldBatch(), after
    order = pa.array(chosen[np.argsort(revisions[chosen], kind="stable")])
    rows = rows.take(order).combine_chunks()
    last, deadlines = int(rows[names[1]][-1].as_py()), _deadlines(rows)
    kinds = _kinds(rows) if is_bucket else None
    if deadlines is not None and kinds is not None:
        followed = (kinds == UpdateKind.PUT) | (deadlines == 0) | follows_expiry(mode)
        rows, kinds, deadlines = rows.filter(pa.array(followed)), kinds[followed], deadlines[followed]
        deadlines = np.where(kinds == UpdateKind.PUT, deadlines, np.uint64(0))
    keys, values = (_binary(rows[name]) for name in (names[0], names[2]))
    versions = version_column(rows[names[1]].to_numpy().astype(np.uint64), deadlines)
    return FoldBatch(keys, values, versions, kinds), last


def _kinds(rows: pa.Table) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    words = rows["kind"].combine_chunks().dictionary_encode()
    codes = np.array([UpdateKind(KINDS.index(word)) for word in words.dictionary.to_pylist()], np.uint8)
    kinds: np.ndarray[tuple[int], np.dtype[np.uint8]] = codes[words.indices.to_numpy()]
    return kinds


def _deadlines(rows: pa.Table) -> "np.ndarray[tuple[int], np.dtype[np.uint64]] | None":
    """Return when values expire; None if none does."""
    if "expires" not in rows.schema.names or rows["expires"].null_count == rows.num_rows:
        return None
    micros = rows["expires"].combine_chunks().cast(pa.int64()).fill_null(0)
    deadlines: np.ndarray[tuple[int], np.dtype[np.uint64]] = micros.to_numpy(zero_copy_only=False).astype(np.uint64)
    return deadlines * np.uint64(1000)


def _binary(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return (whole.fill_null(b"") if whole.null_count else whole).cast(pa.binary())

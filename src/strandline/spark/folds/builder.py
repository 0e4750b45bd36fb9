"""Build a fold of a stream or a bucket of any size; Spark's tasks read.

    plan      the range [first, end) that the stream holds now, cut into parts
    tasks     read a part, keep the last write of each key, stage it cut by key (`merging`)
    driver    merge cut after cut, apply each to a new store, the cursor last
    rename    the store gets its name

Invariants: under the fold's name there is nothing, or the whole fold; it is locked from before the plan until then, so
that no other build begins there. A build that was killed leaves a folder beside it, which the next one removes. A
mirror holds what the stream held; an archive says from which revision on it is complete.
"""

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.files import OsDisk, storage_errors
from strandline.fold import FoldBatch, SnapshotStore
from strandline.fold.backends import Backend, backend_of, existing_backend, open_fold
from strandline.fold.columns import version_column
from strandline.fold.cursor import FoldCursor, format_fold_cursor
from strandline.fold.paths import LOCK_SUFFIX
from strandline.fold.repair.decisions import complete_from
from strandline.journal import WRITTEN
from strandline.kv import NO_CURSOR
from strandline.kv.nats.layout import retention_of
from strandline.nats.streams import StreamState
from strandline.protocol.fold_modes import FoldMode
from strandline.spark.error_transport import parse_error, transported_batches
from strandline.spark.errors import RecordsMissing, invalid_input
from strandline.spark.folds.scope import first_cursor, options_of
from strandline.spark.folds.shuffle import chunks, puts_of, read_cut, rows_of, write_cuts
from strandline.spark.logs.ranges import resolve_range, split_range
from strandline.spark.streams.log import ROWS_PER_PART, StreamLog, StreamRange, identity_of, open_session, read_messages
from strandline.spark.streams.options import StreamOptions
from strandline.wire import Times

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.artifacts import Publication, PublishedArtifacts

BUILDING_SUFFIX = ".building"
PART_BYTES = 256 * 1024 * 1024
CUT_BYTES = 128 * 1024 * 1024
CUTS_MAX = 512
APPLY_ROWS = 50_000
_TASK_DDL = "part BIGINT, rows BIGINT"
_TASK = pa.schema([("part", pa.int64()), ("rows", pa.int64())])


@dataclass(frozen=True, slots=True)
class BuiltFold:
    """A fold that was built: where it stands, how many messages were read and how many keys are left."""

    path: Path
    backend: Backend
    cursor: FoldCursor
    messages: int
    entries: int
    published: "Publication | None" = None


def fold_build(
    spark: "SparkSession",
    options: Mapping[str, str],
    path: Path | str,
    backend: Backend | None = None,
    *,
    mode: FoldMode | None = None,
    publish: str | None = None,
) -> BuiltFold:
    """Build the fold of a stream or bucket at `path`, where none may be; the options are those of a bounded read.

    A key of a stream that is no bucket is its subject. `watch_applied` goes on from the fold of a bucket. `mode` is a
    mirror unless it says otherwise: what the stream dropped is not in it, and what it drops later will not be. With
    `publish`, an address such as `s3://bucket/prices`, the fold is published there as an artifact too.
    """
    if publish is not None:
        _open_artifacts(publish).close()  # a wrong address is told before hours of work
    path = Path(os.path.abspath(path))  # noqa: PTH100 - tasks have other working folders
    wanted = options_of(options)
    with _reserved(path) as folder:
        since_ns = time.time_ns()
        with open_session(wanted) as session:
            state, whole = session.state(), resolve_range(StreamLog(session, wanted), wanted)
        # A value evicted meanwhile comes again behind the end, has left a mirror, or is before an archive's floor.
        wanted = replace(wanted, is_floor_watched=False)
        parts = split_range(
            whole, max(wanted.partitions or os.cpu_count() or 1, state.stored_bytes // PART_BYTES), ROWS_PER_PART
        )
        cuts = min(CUTS_MAX, 1 + state.stored_bytes // CUT_BYTES)
        messages = read_parts(spark, wanted, parts, folder / "staged", cuts)
        mark = first_cursor(state, wanted, mode)._replace(revision=whole.stop - 1, since_ns=since_ns)
        chosen = backend_of(path, backend)
        with _closing(open_fold(folder / "fold", chosen, sync=WRITTEN)) as store:
            entries, expires = _fill(store, folder / "staged", len(parts), cuts)
            end = _check_end(wanted, whole, entries)
            mark = mark._replace(floor=_floor(mark, state, end), has_deadlines=expires)
            store.apply(FoldBatch(), format_fold_cursor(mark))
        put_in_place(folder / "fold", path)
    built = BuiltFold(path, chosen, mark, messages, entries)
    return built if publish is None else replace(built, published=_publish(path, publish))


def _publish(path: Path, address: str) -> "Publication":
    from strandline.artifacts import publish_fold  # noqa: PLC0415 - only with artifacts

    with _open_artifacts(address) as artifacts:
        return publish_fold(path, artifacts)


def _open_artifacts(address: str) -> "PublishedArtifacts":
    from strandline.artifacts import PublishedArtifacts  # noqa: PLC0415 - only with artifacts

    return PublishedArtifacts.open(address)


@contextmanager
def _reserved(path: Path) -> Iterator[Path]:
    """Hold the name of a fold, and a folder to build it in."""
    folder, disk = path.with_name(path.name + BUILDING_SUFFIX), OsDisk()
    with storage_errors(path):
        disk.make_folder(path.parent)
        lock = disk.lock(path.with_name(path.name + LOCK_SUFFIX))
        try:
            if path.exists() and (existing_backend(path) is not None or path.is_dir()):
                raise invalid_input(
                    f"{path} is there already", "give another path, or remove it; keep_current keeps it up"
                )
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()


@contextmanager
def _closing(store: SnapshotStore) -> Iterator[SnapshotStore]:
    try:
        yield store
    finally:
        store.close()


def read_parts(spark: "SparkSession", options: StreamOptions, parts: list[StreamRange], folder: Path, cuts: int) -> int:
    """Let tasks read and stage the parts; return how many messages there were."""
    if not parts:
        return 0
    task = partial(transported_batches, stage_part, options, parts, folder, cuts)
    numbers = spark.range(0, len(parts), 1, len(parts))
    try:
        staged = numbers.mapInArrow(task, _TASK_DDL).toArrow()
    except Exception as error:  # noqa: BLE001 - Spark wraps the task's own
        raise (parse_error(str(error)) or error) from None
    done = sorted(staged["part"].to_pylist())
    if done != list(range(len(parts))):
        raise RecordsMissing(str(options.target), f"{len(parts) - len(done)} of {len(parts)} parts were not read")
    return int(sum(staged["rows"].to_pylist()))


def stage_part(
    options: StreamOptions, parts: list[StreamRange], folder: Path, cuts: int, numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read the parts with these numbers and stage the last rows of their keys: the body of a task."""
    for batch in numbers:
        for part in batch.column(0).to_pylist():
            wanted, is_bucket = parts[part], options.target.kind == "bucket"
            messages = read_messages(options, wanted, Times.OF_HEADERS)
            batches = (rows_of(delivered, wanted.prefix, is_bucket=is_bucket) for delivered in messages)
            rows = write_cuts(folder, part, chunks(batches), cuts)
            yield pa.RecordBatch.from_pydict({"part": [part], "rows": [rows]}, schema=_TASK)


def _floor(mark: FoldCursor, before: StreamState, after: StreamState) -> int:
    """Return where a mirror begins, or from where on an archive is complete, whatever was dropped meanwhile."""
    if mark.mode is FoldMode.MIRROR:
        return before.first
    return complete_from(retention_of(replace(after, last=mark.revision)))


def _check_end(options: StreamOptions, whole: StreamRange, entries: int) -> StreamState:
    """Refuse a fold that no follower could continue: its stream was made again, was purged, or begins behind the end.

    Where all that was read is gone it was pushed out by newer values, and then every key is still there; or purged.
    """
    with open_session(options) as session:
        state = session.state()
    stop = whole.stop
    if identity_of(state) != whole.identity:
        raise RecordsMissing(str(options.target), "it was made again while it was read")
    is_purged = options.filters or state.num_subjects < entries
    if stop < state.first or (entries and stop == state.first and is_purged):
        raise RecordsMissing(str(options.target), f"it was purged, or all of it replaced, up to {state.first}")
    return state


def _fill(store: SnapshotStore, folder: Path, parts: int, cuts: int) -> tuple[int, bool]:
    """Apply the rows of every cut, and return the number of keys, and whether one of them expires."""
    entries, expires = 0, False
    for cut in range(cuts):
        rows = puts_of(read_cut(folder, range(parts), cut))
        entries += rows.num_rows
        for begin in range(0, rows.num_rows, APPLY_ROWS):
            piece = rows.slice(begin, APPLY_ROWS).combine_chunks()
            keys, values = piece["key"].chunk(0), piece["value"].chunk(0)
            revisions, deadlines = piece["revision"].to_numpy(), piece["expires"].to_numpy()
            is_timed = bool(deadlines.any())
            expires = expires or is_timed
            store.apply(FoldBatch(keys, values, version_column(revisions, deadlines if is_timed else None)), NO_CURSOR)
    return entries, expires


def put_in_place(built: Path, path: Path) -> None:
    """Make a closed store durable and give it its name, with one rename."""
    disk = OsDisk()
    files = [built, *built.iterdir()] if built.is_dir() else [built]
    for file in files:
        _sync(file)
    if path.is_dir():
        path.rmdir()  # empty: it was looked at
    disk.rename(built, path)
    # What stands beside the store makes opening it quicker, and may be missing.
    for beside in built.parent.glob(f"{built.name}.*"):
        suffix = beside.name.removeprefix(built.name)
        if suffix != LOCK_SUFFIX:
            disk.rename(beside, path.with_name(path.name + suffix))
    disk.sync_folder(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

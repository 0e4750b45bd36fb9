"""Export in the logical form: a base, or the rows that changed since an artifact before it.

Invariants: the state of an artifact is its runs merged, the last one first. An increment is exact whatever the history
between the two artifacts was: it is the difference of two states and not a list of updates, so deletes, expiry and
repairs are in it. Versions tell whether an entry changed; an entry without a revision always counts as changed. Two
streams are compared in bounded memory, and of the artifact before only keys and versions are read.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from strandline.artifacts.errors import ArtifactInvalid, Refusal
from strandline.artifacts.exporter import check_cursor, check_destination, checked_rows, finish, hash_of, now_unix
from strandline.artifacts.importer import read_artifact, read_checked
from strandline.artifacts.manifest import DATA_FOLDER, TABLE_VERSION, ArtifactFile, Form, Manifest
from strandline.artifacts.runs import (
    KEY_COLUMNS,
    PAGE_ROWS,
    SCHEMA,
    OpenFile,
    RunTail,
    RunWriter,
    merged,
    one_array,
    read_run,
    table_of,
    versions_of,
)
from strandline.artifacts.staging import link_or_copy, staged
from strandline.clock import Clock
from strandline.fold import PutColumns, StoreSnapshot, parse_fold_cursor
from strandline.fold.cursor import UNKNOWN
from strandline.fold.digests import FoldDigest

BACKEND = "table"
"""What the manifest of the logical form has as its backend."""
RUNS_MAX = 8
DELTA_PART = 2
"""Runs behind the base are merged into a new base when they have more than 1/2 of its bytes, or are `RUNS_MAX`."""


@dataclass(frozen=True, slots=True)
class Previous:
    """An artifact in the logical form that another goes on from."""

    manifest: Manifest
    open_file: OpenFile
    folder: Path | None = None
    """Where its files are, if they are on this machine."""


def export_logical(
    snapshot: StoreSnapshot, destination: Path | str, *, previous: Previous | None = None, clock: Clock | None = None
) -> Manifest:
    """Make a new folder that holds a snapshot as tables; with `previous`, only what changed since, where that pays.

    The manifest names the files of `previous` too; they are linked into the folder if `previous` is one.
    """
    destination = Path(destination)
    check_destination(destination)
    check_cursor(snapshot, destination)
    kept = previous if previous is not None and goes_on(previous.manifest, snapshot) else None
    with staged(destination) as stage:
        stage.mkdir()
        (stage / DATA_FOLDER).mkdir()
        digest, keys = FoldDigest(), FoldDigest()
        rows = _digested(checked_rows(snapshot, destination, PAGE_ROWS), digest, keys)
        changes = rows if kept is None else difference(merged(_runs(kept)), rows)
        run = 0 if kept is None else max(kept.manifest.runs, default=0) + 1
        files = _write_run(stage, parse_fold_cursor(snapshot.cursor()).revision, run, changes)
        manifest = Manifest(
            Form.LOGICAL,
            BACKEND,
            TABLE_VERSION,
            snapshot.cursor(),
            digest.entries,
            digest.digest().hex(),
            now_unix(clock),
            (*(kept.manifest.files if kept else ()), *files),
        )
        _check_runs(stage, kept, files, keys, str(destination))
        if kept is not None and kept.folder is not None:
            for file in kept.manifest.files:
                link_or_copy(kept.folder / file.path, stage / file.path)
        finish(stage, destination, manifest)
    return manifest


def local_previous(artifact: Path | str) -> Previous:
    """Return an artifact in a folder, to go on from."""
    folder = Path(artifact)
    return Previous(read_artifact(folder), lambda file: read_checked(folder, file), folder)


def goes_on(before: Manifest, snapshot: StoreSnapshot) -> bool:
    """Tell whether an increment is possible and pays: the same log, not older, few runs that are small."""
    theirs, ours = before.fold_cursor, parse_fold_cursor(snapshot.cursor())
    if before.form is not Form.LOGICAL or not theirs.revision or ours.revision < theirs.revision:
        return False
    if theirs.identity == UNKNOWN or theirs.identity != ours.identity:
        return False
    if not before.files:
        return False  # it is of a fold without keys
    base, *deltas = (sum(file.size for file in files) for files in before.runs.values())
    return len(deltas) < RUNS_MAX and DELTA_PART * sum(deltas) <= base


def difference(before: Iterator[pa.Table], after: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield, by key, the rows of `after` that are new or have another version, and deletes of keys only `before` has.

    `before` needs no values.
    """
    left, right = RunTail(before), RunTail(after)
    while tails := [tail for tail in (left, right) if tail.fill()]:
        bound = min(tail.last_key() for tail in tails)
        changes = _changes(left.take(bound), right.take(bound))
        if len(changes):
            yield changes


def _changes(old: pa.Table, new: pa.Table) -> pa.Table:
    old_keys, new_keys = one_array(old["key"]), one_array(new["key"])
    puts = new
    if len(old) and len(new):
        matched = pc.index_in(new_keys, value_set=old_keys)
        known = versions_of(old).take(matched)  # null where a key is new
        is_same = pc.fill_null(pc.equal(known, versions_of(new)), fill_value=False)
        puts = new.filter(pc.invert(pc.and_(is_same, pc.is_valid(one_array(new["revision"])))))
    gone = old_keys.filter(pc.invert(pc.is_in(old_keys, value_set=new_keys)))
    if not len(gone):
        return puts
    columns = [gone, *(pa.nulls(len(gone), field.type) for field in list(SCHEMA)[1:])]
    return pa.concat_tables([puts, pa.Table.from_arrays(columns, schema=SCHEMA)]).combine_chunks().sort_by("key")


def _digested(pages: Iterator[PutColumns], digest: FoldDigest, keys: FoldDigest) -> Iterator[pa.Table]:
    """Pass rows on, and take them into the digests of the state, and of its keys and versions."""
    for rows in pages:
        digest.update(rows)
        _update_keys(keys, rows.keys, rows.versions)
        yield table_of(rows)


def _update_keys(digest: FoldDigest, keys: pa.BinaryArray, versions: pa.BinaryArray) -> None:
    """Take in whole versions, as values: a version's own place has no deadline."""
    digest.update(PutColumns(keys, versions, pa.repeat(pa.scalar(b"", pa.binary()), len(keys))))


def _write_run(stage: Path, rank: int, run: int, tables: Iterable[pa.Table]) -> list[ArtifactFile]:
    writer = RunWriter(stage, rank, run)
    for table in tables:
        writer.write(table)
    writer.close()
    return [
        ArtifactFile(path, (stage / path).stat().st_size, hash_of(stage / path), rank, run, rows)
        for path, rows in writer.parts
    ]


def _runs(previous: Previous) -> list[Iterator[pa.Table]]:
    manifest, name = previous.manifest, str(previous.folder or "the artifact before")
    runs = manifest.runs.values()
    return [read_run(files, previous.open_file, KEY_COLUMNS, name=name, rank=manifest.rank) for files in runs]


def _check_runs(stage: Path, kept: Previous | None, files: list[ArtifactFile], wanted: FoldDigest, path: str) -> None:
    """Read the new files again, and require that all runs together hold the keys and versions of the snapshot."""
    added = read_run(files, lambda file: pa.OSFile(str(stage / file.path)), name=path)
    found = FoldDigest()
    for table in merged([*(_runs(kept) if kept else ()), (_with_values(table) for table in added)]):
        _update_keys(found, one_array(table["key"]), versions_of(table))
    if (found.entries, found.digest()) != (wanted.entries, wanted.digest()):
        problem = f"the tables hold {found.entries:,} entries that are not the {wanted.entries:,} of the fold"
        raise ArtifactInvalid(path, Refusal.TAMPERED, problem)


def _with_values(table: pa.Table) -> pa.Table:
    """Leave out the values, which were read so that the sums of their pages are checked."""
    return table.select(KEY_COLUMNS)

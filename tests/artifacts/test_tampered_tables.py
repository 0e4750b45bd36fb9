"""Artifacts whose manifest agrees with files that no exporter makes: each is refused, and nothing is imported."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from blake3 import blake3

from strandline.artifacts import (
    ArtifactInvalid,
    ArtifactUnfit,
    Refusal,
    export_logical,
    export_snapshot,
    import_fold,
    local_previous,
    runs,
    take_snapshot,
)
from strandline.fold import FoldBatch, MemoryStore
from strandline.fold.digests import FoldDigest
from strandline.kv import format_revision
from tests.artifacts.fleet import apply, cursor

Row = dict[str, Any]


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    store = MemoryStore()
    revision = apply(store, 0, [(b"key.%d" % at, b"value %d" % at) for at in range(8)])
    with closing(take_snapshot(store)) as snapshot:
        export_logical(snapshot, tmp_path / "base")
    apply(store, revision, [(b"key.1", b"new"), (b"key.2", None)])
    with closing(take_snapshot(store)) as snapshot:
        export_logical(snapshot, tmp_path / "artifact", previous=local_previous(tmp_path / "base"))
    return tmp_path / "artifact"


def replace_table(artifact: Path, number: int, table: pa.Table, *, rows: int | None = None) -> None:
    """Put another table in place of a file, and make the manifest agree with it: hash, size, rows and digest."""
    path = artifact / "MANIFEST.json"
    manifest = json.loads(path.read_text())
    listed = manifest["files"][number]
    file = artifact / listed["path"]
    file.unlink()  # it is a link
    pq.write_table(table, file, store_schema=False)
    data = file.read_bytes()
    listed |= {
        "size": len(data),
        "blake3": blake3(data).hexdigest(),
        "rows": len(table) if rows is None else rows,
    }
    digest = FoldDigest()
    tables = [pq.read_table(artifact / listed["path"]) for listed in manifest["files"]]
    try:
        for merged in runs.merged([iter([each]) for each in tables if len(each)]):
            digest.update(runs.rows_of(merged))
    except (KeyError, TypeError, pa.ArrowException):
        pass  # it is refused before
    manifest |= {"entries": digest.entries, "digest": digest.digest().hex()}
    path.write_text(json.dumps(manifest))


def changed(
    change: Callable[[list[Row]], list[Row]], schema: pa.Schema = runs.SCHEMA
) -> Callable[[pa.Table], pa.Table]:
    return lambda table: pa.Table.from_pylist(change(table.to_pylist()), schema)


NULLABLE = pa.schema([field.with_nullable(True) for field in runs.SCHEMA])
DELETE: Row = {"key": b"zzz", "value": None, "revision": None, "expires_ns": None, "version": None}
BASES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "descending": changed(lambda rows: rows[::-1]),
    "two rows of a key": changed(lambda rows: [rows[0], *rows]),
    "two rows out of order": changed(lambda rows: [rows[1], rows[0], *rows[2:]]),
    "a delete in the base": changed(lambda rows: [*rows, DELETE]),
    "a revision beyond the cursor": changed(lambda rows: [*rows[:-1], {**rows[-1], "revision": 11}]),
    "a revision below 1": changed(lambda rows: [*rows[:-1], {**rows[-1], "revision": -1}]),
    "a deadline below 1": changed(lambda rows: [*rows[:-1], {**rows[-1], "expires_ns": -5}]),
    "a version without a value": changed(lambda rows: [*rows[:-1], {**rows[-1], "value": None}]),
    "a value without a version": changed(lambda rows: [*rows[:-1], {**rows[-1], "revision": None}]),
    "a key that is null": changed(lambda rows: [{**rows[0], "key": None}, *rows[1:]], NULLABLE),
    "a column too few": lambda table: table.drop_columns(["revision"]),
    "a column too many": lambda table: table.append_column("more", pa.nulls(len(table), pa.int64())),
    "a column of another type": lambda table: table.set_column(2, "revision", table["revision"].cast(pa.int32())),
    "a key that is too long": changed(lambda rows: [*rows, {**rows[-1], "key": b"z" * 70_000}]),
    "a value that is too long": changed(lambda rows: [*rows, {**rows[-1], "key": b"z", "value": bytes(17 << 20)}]),
    "a key that is empty": changed(lambda rows: [{**rows[0], "key": b""}, *rows]),
}


@pytest.mark.parametrize("what", BASES)
def test_a_base_that_no_exporter_writes_is_refused(what: str, artifact: Path, tmp_path: Path) -> None:
    file = json.loads((artifact / "MANIFEST.json").read_text())["files"][0]
    replace_table(artifact, 0, BASES[what](pq.read_table(artifact / file["path"])))
    refused(artifact, tmp_path)


def test_the_helper_makes_artifacts_that_are_imported_if_their_tables_are_right(artifact: Path, tmp_path: Path) -> None:
    file = json.loads((artifact / "MANIFEST.json").read_text())["files"][0]
    replace_table(artifact, 0, changed(lambda rows: rows[:-1])(pq.read_table(artifact / file["path"])))
    assert import_fold(artifact, tmp_path / "copy").entries == 6


def test_rows_that_the_manifest_does_not_count_are_refused(artifact: Path, tmp_path: Path) -> None:
    file = json.loads((artifact / "MANIFEST.json").read_text())["files"][0]
    replace_table(artifact, 0, pq.read_table(artifact / file["path"]), rows=7)
    refused(artifact, tmp_path)


def test_bytes_that_are_no_table_are_refused(artifact: Path, tmp_path: Path) -> None:
    path = artifact / "MANIFEST.json"
    manifest = json.loads(path.read_text())
    listed = manifest["files"][0]
    file = artifact / listed["path"]
    whole = file.read_bytes()
    file.unlink()
    for data in (b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1", whole[:-200] + whole[-100:], whole[:4] + whole[400:]):
        file.write_bytes(data)
        listed |= {"size": len(data), "blake3": blake3(data).hexdigest()}
        path.write_text(json.dumps(manifest))
        refused(artifact, tmp_path)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (lambda files: [files[0], {**files[1], "run": 0}], Refusal.TAMPERED),  # a run twice as long
        (lambda files: [files[0], {**files[1], "run": 2}], Refusal.NOT_A_MANIFEST),
        (lambda files: [{**files[0], "run": 1}, files[1]], Refusal.NOT_A_MANIFEST),
        (lambda files: [{**files[0], "run": 1}, {**files[1], "run": 0}], Refusal.TAMPERED),
        (lambda files: [{**files[0], "size": 2**64 - 1}, files[1]], Refusal.NOT_A_MANIFEST),
        (lambda files: [{**files[0], "size": 2**64}, files[1]], Refusal.NOT_A_MANIFEST),
        (lambda files: [{**files[0], "size": -1}, files[1]], Refusal.NOT_A_MANIFEST),
        (lambda files: [{**files[0], "size": 1e3}, files[1]], Refusal.NOT_A_MANIFEST),
        (lambda files: [{**files[0], "rows": True}, files[1]], Refusal.NOT_A_MANIFEST),
        (lambda files: [*files, files[0]], Refusal.NOT_A_MANIFEST),
        (lambda files: [files[0], {**files[1], "path": files[1]["path"].upper()}], Refusal.UNSAFE_PATH),
        (lambda files: [files[0], {**files[1], "path": "data/caf\u00e9"}], Refusal.UNSAFE_PATH),
        (lambda files: [files[0], {**files[1], "path": "data/cafe\u0301"}], Refusal.UNSAFE_PATH),
        (lambda files: [files[0], {**files[1], "path": "data/\ud800"}], Refusal.UNSAFE_PATH),
        (lambda files: [files[0], {**files[1], "path": "data/a\0b"}], Refusal.UNSAFE_PATH),
        (lambda files: files[:1], Refusal.EXTRA_FILE),
    ],
)
def test_files_that_no_exporter_names_are_refused(
    change: Callable[[list[Row]], list[Row]], refusal: Refusal, artifact: Path, tmp_path: Path
) -> None:
    path = artifact / "MANIFEST.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "files": change(manifest["files"])}))
    assert refused(artifact, tmp_path) is refusal


def test_a_manifest_without_an_end_is_refused(artifact: Path, tmp_path: Path) -> None:
    (artifact / "MANIFEST.json").write_bytes(b"[" * 100_000)
    assert refused(artifact, tmp_path) is Refusal.NOT_A_MANIFEST


def refused(artifact: Path, folder: Path) -> Refusal:
    with pytest.raises(ArtifactInvalid) as error:
        import_fold(artifact, folder / "copy")
    assert [path.name for path in folder.iterdir() if "copy" in path.name and not path.name.endswith(".lock")] == []
    return error.value.refusal


@pytest.mark.parametrize("is_raw", [False, True])
def test_data_ahead_of_its_cursor_is_not_exported(is_raw: bool, tmp_path: Path) -> None:
    """A repair that was cut short leaves it so: it is not of a single moment."""
    store = MemoryStore()
    apply(store, 0, [(b"a", b"1"), (b"b", b"1")])
    store.apply(FoldBatch([b"c"], [b"2"], [format_revision(9)]), cursor(2))
    export = export_snapshot if is_raw else export_logical
    with closing(take_snapshot(store)) as snapshot, pytest.raises(ArtifactUnfit) as unfit:
        export(snapshot, tmp_path / "artifact")
    assert unfit.value.refusal is Refusal.CURSOR_MISMATCH
    assert list(tmp_path.iterdir()) == []

"""The logical form: one backend seeds another, increments are exact, and other programs read the tables."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from strandline.artifacts import (
    ArtifactInvalid,
    Form,
    Manifest,
    Refusal,
    export_logical,
    import_fold,
    local_previous,
    runs,
    take_snapshot,
)
from strandline.artifacts.logical import RUNS_MAX
from strandline.fold import (
    FoldBatch,
    FoldEntry,
    MemoryStore,
    PutColumns,
    SnapshotStore,
    open_fold,
)
from strandline.fold.records import join_version
from strandline.journal import WRITTEN
from strandline.kv import format_revision
from strandline.testing.snapshot_stores import everything
from tests.artifacts.fleet import apply, cursor

NAMES = ["fold", "fold.db", "fold.rocks"]


def export(store: SnapshotStore, path: Path, previous: Path | None = None) -> Manifest:
    with closing(take_snapshot(store)) as snapshot:
        return export_logical(snapshot, path, previous=local_previous(previous) if previous else None)


@contextmanager
def imported(artifact: Path, path: Path) -> Iterator[SnapshotStore]:
    import_fold(artifact, path)
    with closing(open_fold(path)) as store:
        yield store


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    revision = apply(store, 0, [(b"key.%04d" % at, b"value %d" % at) for at in range(500)])
    revision = apply(store, revision, [(b"timed", b"soon gone")], expires_ns=1_800_000_000_000_000_000)
    apply(store, revision, [(b"key.0007", None), (b"empty", b"")])
    return store


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("source", NAMES)
def test_a_fold_of_one_backend_seeds_one_of_another(source: str, name: str, tmp_path: Path, store: MemoryStore) -> None:
    with closing(open_fold(tmp_path / source, sync=WRITTEN)) as first:
        page = PutColumns(*(pa.chunked_array(c).combine_chunks() for c in zip(*store.pages().columns, strict=True)))
        first.apply(FoldBatch(*page), store.cursor())
        manifest = export(first, tmp_path / "artifact")
    assert (manifest.form, manifest.entries) == (Form.LOGICAL, 501)
    with imported(tmp_path / "artifact", tmp_path / "copy" / name) as copy:
        assert everything(copy) == everything(store)
        assert copy.get(b"timed") == FoldEntry(
            b"timed", b"soon gone", format_revision(501), expires_ns=1_800_000_000_000_000_000
        )


def test_versions_that_are_no_revisions_come_back() -> None:
    versions = [b"", b"\0", bytes(8), b"\xff" * 8, b"\xff" * 10, bytes(16), b"\xff" * 16, format_revision(7)]
    versions.append(join_version(format_revision(7), 9))
    columns = [pa.array(column, pa.binary()) for column in ([b"%d" % at for at in range(9)], [b"x"] * 9, versions)]
    table = runs.table_of(PutColumns(*columns))
    assert runs.rows_of(table).versions.to_pylist() == versions
    assert not any(row["revision"] is None and row["version"] is None for row in table.to_pylist())


def test_an_increment_holds_what_changed_and_nothing_else(tmp_path: Path, store: MemoryStore) -> None:
    first = export(store, tmp_path / "first")
    revision = apply(store, first.rank, [(b"key.0001", b"new"), (b"key.0002", None), (b"zzz", b"last"), (b"a", b"1")])
    apply(store, revision, [(b"key.0003", None), (b"key.0003", b"again"), (b"never there", None)])
    second = export(store, tmp_path / "second", tmp_path / "first")
    assert second.files[: len(first.files)] == first.files
    (delta,) = second.runs[1]
    rows = list(runs.read_run([delta], lambda file: pa.OSFile(str(tmp_path / "second" / file.path))))
    assert [row["key"] for table in rows for row in table.to_pylist()] == [
        b"a", b"key.0001", b"key.0002", b"key.0003", b"zzz"
    ]  # fmt: skip
    assert (delta.rows, delta.rank) == (5, second.rank)
    with imported(tmp_path / "second", tmp_path / "copy") as copy:
        assert everything(copy) == everything(store)


@pytest.mark.parametrize("seed", range(4))
def test_increments_upon_increments_end_equal(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pages and parts, so that every border is met; after some runs there is a new base."""
    for name, value in (("PAGE_ROWS", 7), ("GROUP_ROWS", 20), ("PART_BYTES", 2000)):
        monkeypatch.setattr(runs, name, value)
    random, store, revision, previous = Random(seed), MemoryStore(), 0, None
    counts: list[int] = []
    for round_ in range(RUNS_MAX + 4):
        rows = [
            (b"key.%03d" % random.randrange(300), None if random.random() < 0.3 else random.randbytes(20))
            for _ in range(300 if not round_ else random.randrange(1, 12))
        ]
        revision = apply(store, revision, rows)
        manifest = export(store, tmp_path / f"artifact-{round_}", previous)
        previous = tmp_path / f"artifact-{round_}"
        counts.append(len(manifest.runs))
        with imported(previous, tmp_path / f"copy-{round_}") as copy:
            assert everything(copy) == everything(store)
    assert 2 < max(counts) <= RUNS_MAX + 1
    assert any(after < before for before, after in pairwise(counts)), "there should be a new base"


def test_another_bucket_or_an_older_state_is_no_beginning_of_an_increment(tmp_path: Path, store: MemoryStore) -> None:
    export(store, tmp_path / "first")
    older = MemoryStore()
    apply(older, 0, [(b"a", b"1")])
    assert len(export(older, tmp_path / "older", tmp_path / "first").runs) == 1
    store.apply(FoldBatch(), cursor(900, b"anothers"))
    assert len(export(store, tmp_path / "another", tmp_path / "first").runs) == 1


def test_other_programs_read_a_base_as_a_table(tmp_path: Path, store: MemoryStore) -> None:
    export(store, tmp_path / "artifact")
    table = ds.dataset(tmp_path / "artifact" / "data").to_table()
    assert table.column_names == ["key", "value", "revision", "expires_ns", "version"]
    assert table["key"].to_pylist() == [entry.key for entry in store.range()]
    assert dict(zip(table["key"].to_pylist(), table["revision"].to_pylist(), strict=True))[b"key.0003"] == 4


def test_a_changed_table_is_refused(tmp_path: Path, store: MemoryStore) -> None:
    manifest = export(store, tmp_path / "artifact")
    file = tmp_path / "artifact" / manifest.files[0].path
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)
    with pytest.raises(ArtifactInvalid) as refused:
        import_fold(tmp_path / "artifact", tmp_path / "copy")
    assert refused.value.refusal is Refusal.TAMPERED
    assert not (tmp_path / "copy").exists()


def test_an_empty_fold_is_a_table_of_nothing(tmp_path: Path) -> None:
    assert export(MemoryStore(), tmp_path / "artifact").files == ()
    with imported(tmp_path / "artifact", tmp_path / "copy") as copy:
        assert copy.load() is None


def test_a_fold_that_was_empty_is_exported_whole_again(tmp_path: Path) -> None:
    store = MemoryStore()
    revision = apply(store, 0, [(b"key", b"x"), (b"key", None)])
    export_fold_as_tables(store, tmp_path / "empty")
    apply(store, revision, [(b"key", b"y")])
    with closing(take_snapshot(store)) as snapshot:
        manifest = export_logical(snapshot, tmp_path / "later", previous=local_previous(tmp_path / "empty"))
    assert (manifest.entries, len(manifest.files)) == (1, 1)


def export_fold_as_tables(store: MemoryStore, path: Path) -> None:
    with closing(take_snapshot(store)) as snapshot:
        assert export_logical(snapshot, path).files == ()

"""Folds that earlier versions wrote load for ever."""

import shutil
from pathlib import Path

import pytest

from strandline.fold import FoldBatch, FoldEntry, MemoryStore, parse_fold_cursor
from strandline.journal import SYNCED
from strandline.kv import NO_CURSOR, format_revision
from strandline.testing.snapshot_stores import everything
from tests.fold.helpers import DURABLE
from tests.fold.make_fixtures import BACKENDS, DEADLINE_NS, MARK, TIMED, fill

FIXTURES = Path(__file__).parents[1] / "fixtures" / "fold"
DIGEST = "3adb8854a5b211d4257c86bfb4d6eb20754083870b0c73dd6562a201df3bab40"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fold_of_version_1_is_read(backend: str, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    shutil.copytree(FIXTURES / "v1" / backend.replace(" ", "-"), place)
    twin = MemoryStore()
    fill(twin)
    for _ in range(2):
        store = DURABLE[backend](place, SYNCED)
        assert everything(store) == everything(twin)
        assert store.verify() == twin.verify()
        assert store.verify().digest.hex() == DIGEST
        store.settle()
        store.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fold_of_version_2_is_read_with_its_deadlines_and_its_mark(backend: str, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    shutil.copytree(FIXTURES / "v2" / backend.replace(" ", "-"), place)
    twin = MemoryStore()
    fill(twin, timed=True)
    for _ in range(2):
        store = DURABLE[backend](place, SYNCED)
        assert everything(store) == everything(twin)
        assert store.verify() == twin.verify()
        assert store.multi_get([b"timed", b"and"]) == [
            FoldEntry(b"timed", b"1", format_revision(8), DEADLINE_NS),
            FoldEntry(b"and", b"2", format_revision(9)),
        ]
        assert parse_fold_cursor(store.cursor()) == MARK
        files = store.files()
        assert (files.backend, files.version) == (backend.replace(" ", "-"), 3 if backend == "append log" else 2)
        assert files.paths[0].exists()
        store.settle()
        store.close()


def test_when_a_value_expires_is_no_part_of_the_digest() -> None:
    timed, plain = MemoryStore(), MemoryStore()
    timed.apply(TIMED, NO_CURSOR)
    plain.apply(FoldBatch(TIMED.keys, TIMED.values, [format_revision(8), format_revision(9)]), NO_CURSOR)
    assert timed.verify() == plain.verify()

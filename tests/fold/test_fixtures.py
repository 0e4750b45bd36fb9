"""Folds that version 1 wrote load for ever."""

import shutil
from pathlib import Path

import pytest

from strandline.fold import MemoryStore
from strandline.journal import SYNCED
from strandline.testing.snapshot_stores import everything
from tests.fold.helpers import DURABLE
from tests.fold.make_fixtures import BACKENDS, fill

FIXTURES = Path(__file__).parents[1] / "fixtures" / "fold" / "v1"
DIGEST = "3adb8854a5b211d4257c86bfb4d6eb20754083870b0c73dd6562a201df3bab40"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fold_of_version_1_is_read(backend: str, tmp_path: Path) -> None:
    place = tmp_path / "copy"
    shutil.copytree(FIXTURES / backend.replace(" ", "-"), place)
    twin = MemoryStore()
    fill(twin)
    for _ in range(2):
        store = DURABLE[backend](place, SYNCED)
        assert everything(store) == everything(twin)
        assert store.verify() == twin.verify()
        assert store.verify().digest.hex() == DIGEST
        store.settle()
        store.close()

"""The last repair of a fold is kept beside it, for other processes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.clock import ManualClock
from strandline.errors import Damaged
from strandline.events import Events
from strandline.fold import AppendLogStore
from strandline.fold.events import RepairBegan, RepairEnded
from strandline.fold.last_repair import (
    LastRepair,
    RepairRecorder,
    format_last_repair,
    parse_last_repair,
    read_last_repair,
)
from strandline.protocol.repairs import RepairPlan

COUNTS = st.integers(min_value=0)
REPAIRS = st.builds(LastRepair, st.text(), st.text(), COUNTS, COUNTS, COUNTS, st.floats(0, 1e9))


@given(REPAIRS)
def test_a_repair_is_read_as_it_was_written(repair: LastRepair) -> None:
    assert parse_last_repair(format_last_repair(repair)) == repair


def test_the_last_repair_that_ended_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "prices.fold"
    AppendLogStore.open(path).close()
    events = Events(RepairRecorder(path, ManualClock(1_700_000_000_000_000_000)))
    assert read_last_repair(path) is None
    events.emit(RepairBegan(RepairPlan.RELIST, "its cursor has expired"))
    assert read_last_repair(path) is None, "it has not ended"
    events.emit(RepairEnded(RepairPlan.RELIST, 0, 3, 0.5))
    first = LastRepair("relist", "its cursor has expired", 1_700_000_000, 0, 3, 0.5)
    assert read_last_repair(path) == first
    RepairRecorder(path)
    assert read_last_repair(path) == first, "another process goes on with the same fold"
    events.emit(RepairBegan(RepairPlan.RESTORE, "it was asked for"))
    events.emit(RepairEnded(RepairPlan.RESTORE, 7, 0, 1.0))
    assert read_last_repair(path) == LastRepair("restore", "it was asked for", 1_700_000_000, 7, 0, 1.0)


def test_a_new_fold_has_not_the_repair_of_one_that_was_removed(tmp_path: Path) -> None:
    path = tmp_path / "prices.fold"
    AppendLogStore.open(path).close()
    recorder = RepairRecorder(path)
    recorder(RepairEnded(RepairPlan.RELIST, 0, 3, 0.5))
    path.unlink()
    RepairRecorder(path)
    assert read_last_repair(path) is None


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{}", b'{"plan": "relist"}', b"{" * 100_000])
def test_a_file_of_something_else_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "prices.fold.repair").write_bytes(content)
    with pytest.raises(Damaged, match="is not the note of a repair") as refused:
        read_last_repair(tmp_path / "prices.fold")
    assert refused.value.hint == "remove it: no fold depends on it"

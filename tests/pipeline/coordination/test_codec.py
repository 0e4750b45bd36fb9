"""Records are read as they were written, old bytes for ever, and broken bytes never."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import Damaged, FormatError, StrandlineError
from strandline.pipeline.coordination.codec import (
    Owner,
    format_owner,
    format_run,
    format_shard,
    parse_owner,
    parse_run,
    parse_shard,
)
from strandline.protocol.errors import RecordBroken
from strandline.protocol.runs import RunRecord
from strandline.protocol.shards import Cursor, ShardRecord
from tests.pipeline.coordination.records import KNOWN_RUNS, KNOWN_SHARDS, i64, runs, shards

FIXTURES = Path(__file__).parent.parent.parent / "fixtures" / "coordination" / "v1"
LEASED = format_shard(KNOWN_SHARDS["leased"])
STATUS = 3 + 32 + 16
FLAGS = STATUS + 2 + 8


@given(shards())
def test_a_shard_is_read_as_it_was_written(shard: ShardRecord) -> None:
    assert parse_shard(format_shard(shard)) == shard


@given(runs())
def test_a_run_is_read_as_it_was_written(run: RunRecord) -> None:
    assert parse_run(format_run(run)) == run


@given(i64, st.integers(0, 2**63))
def test_an_owner_is_read_as_it_was_written(worker: int, fence: int) -> None:
    data = format_owner(Owner(worker, fence))
    assert (parse_owner(data), len(data)) == (Owner(worker, fence), 19)


def test_known_bytes_of_an_owner() -> None:
    assert format_owner(Owner(-1, 2)) == b"v1\x03" + b"\xff" * 8 + b"\x02" + b"\0" * 7


@pytest.mark.parametrize("name", KNOWN_SHARDS)
def test_shards_written_by_version_1_are_read_for_ever(name: str) -> None:
    data = (FIXTURES / f"{name}.shard").read_bytes()
    assert parse_shard(data) == KNOWN_SHARDS[name]
    assert format_shard(KNOWN_SHARDS[name]) == data


@pytest.mark.parametrize("name", KNOWN_RUNS)
def test_runs_written_by_version_1_are_read_for_ever(name: str) -> None:
    data = (FIXTURES / f"{name}.run").read_bytes()
    assert parse_run(data) == KNOWN_RUNS[name]
    assert format_run(KNOWN_RUNS[name]) == data


@given(shards(), st.data())
def test_broken_bytes_are_refused_or_are_another_whole_record(shard: ShardRecord, data: st.DataObject) -> None:
    encoded = bytearray(format_shard(shard))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    try:
        found = parse_shard(bytes(encoded))
    except StrandlineError:
        return
    assert format_shard(found) == bytes(encoded)
    assert found != shard


def test_bytes_that_end_too_early_are_refused() -> None:
    for size in range(len(LEASED)):
        with pytest.raises(Damaged):
            parse_shard(LEASED[:size])


def changed(at: int, value: int) -> bytes:
    return LEASED[:at] + bytes([value]) + LEASED[at + 1 :]


@pytest.mark.parametrize(
    ("data", "kind", "problem"),
    [
        (b"v2" + LEASED[2:], FormatError, "version"),
        (changed(2, 1), FormatError, "kind 2 was expected and kind 1 found"),
        (changed(STATUS, 4), Damaged, "4 is no ShardStatus"),
        (changed(STATUS + 1, 2), Damaged, "2 is no CursorSemantics"),
        (changed(FLAGS, 8), Damaged, "flags 0x8"),
        (changed(FLAGS, 0), Damaged, "absent"),
        (changed(FLAGS, 3), Damaged, "parked"),
        (changed(FLAGS + 17, 1), Damaged, "absent"),
        (LEASED + b"\0", Damaged, "bytes follow"),
        (changed(len(LEASED) - 21, 200), Damaged, "200 is no OpKind"),
    ],
)
def test_what_was_never_written_is_refused(data: bytes, kind: type[StrandlineError], problem: str) -> None:
    with pytest.raises(kind, match=problem):
        parse_shard(data)


def test_an_unknown_status_of_a_run_is_refused() -> None:
    data = bytearray(format_run(KNOWN_RUNS["cancelled"]))
    data[3 + 32 + 8] = 5
    with pytest.raises(Damaged, match="5 is no RunStatus"):
        parse_run(bytes(data))


def test_an_unknown_reason_to_park_is_refused() -> None:
    data = bytearray(format_shard(KNOWN_SHARDS["parked"]))
    data[FLAGS + 17] = 9
    with pytest.raises(Damaged, match="9 is no ParkReason"):
        parse_shard(bytes(data))


def test_a_field_over_one_mebibyte_is_refused() -> None:
    head = LEASED[: FLAGS + 1 + 25]
    with pytest.raises(Damaged, match="too large"):
        parse_shard(head + struct.pack("<I", 2**20 + 1) + bytes(2**21))


def test_bytes_that_break_an_invariant_are_refused() -> None:
    broken = KNOWN_SHARDS["done"]._replace(cursor=Cursor())
    with pytest.raises(RecordBroken):
        parse_shard(format_shard(broken))

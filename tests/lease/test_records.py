"""The record of a lease as bytes."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import FormatError
from strandline.lease import Claimant, LeaseDamaged, LeaseRecord, ObjectLeaseStore, format_record, parse_record
from strandline.lease.records import EPOCH_MAX, NS_PER_MS, TTL_MS_MAX
from strandline.objects import MemoryObjects

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "lease" / "v1"
RECORD = LeaseRecord(7, "node-a", "http://10.0.0.5:8080", "4f0c", 12, 10_000 * NS_PER_MS)
texts = st.text(max_size=40)
records = st.builds(
    LeaseRecord,
    st.integers(1, EPOCH_MAX),
    texts.filter(bool),
    texts,
    texts.filter(bool),
    st.integers(1, EPOCH_MAX),
    st.integers(0, TTL_MS_MAX).map(lambda ttl_ms: ttl_ms * NS_PER_MS),
    st.booleans(),
)


@given(records)
def test_every_record_is_read_as_it_was_written(record: LeaseRecord) -> None:
    assert parse_record(format_record(record), "here") == record


@given(records, st.data())
def test_a_cut_record_is_damaged(record: LeaseRecord, data: st.DataObject) -> None:
    whole = format_record(record)
    with pytest.raises(LeaseDamaged):
        parse_record(whole[: data.draw(st.integers(0, len(whole) - 1))], "here")


def changed(**fields: object) -> bytes:
    return json.dumps({**json.loads(format_record(RECORD)), **fields}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        changed(epoch=0),
        changed(epoch=-1),
        changed(epoch=EPOCH_MAX + 1),
        changed(epoch=True),
        changed(epoch="7"),
        changed(nonce=0),
        changed(ttl_ms=-1),
        changed(ttl_ms=TTL_MS_MAX + 1),
        changed(ttl_ms=1.5),
        changed(released=0),
        changed(holder=""),
        changed(session=""),
        changed(session=None),
        changed(holder="x" * 2000),
        changed(format=0),
        changed(more=1),
    ],
)
def test_what_no_lease_wrote_is_damaged_and_left_alone(data: bytes) -> None:
    with pytest.raises(LeaseDamaged) as raised:
        parse_record(data, "s3://bucket/lease")
    assert "s3://bucket/lease" in str(raised.value)
    assert "floor" in (raised.value.hint or "")
    objects = MemoryObjects()
    objects.put("lease", data)
    with pytest.raises(LeaseDamaged):
        Claimant(ObjectLeaseStore(objects, "lease"), "a").claim()
    assert objects.faults.calls["put"] == 1


def test_a_record_of_a_later_format_is_left_to_later_versions() -> None:
    with pytest.raises(FormatError, match="format 2"):
        parse_record(changed(format=2, quorum=3), "here")


def test_records_of_version_1_are_read() -> None:
    assert parse_record((FIXTURES / "held.json").read_bytes(), "here") == RECORD
    given_back = parse_record((FIXTURES / "released.json").read_bytes(), "here")
    assert given_back == RECORD._replace(nonce=13, ttl_ns=0, released=True)

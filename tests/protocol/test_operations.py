"""Operation ids and the memory of operations."""

import pytest
from blake3 import blake3

from strandline.errors import InvalidInput
from strandline.protocol.errors import OpIdConflict
from strandline.protocol.operations import (
    cursor_payload,
    op_id,
    park_payload,
    payload_hash,
    remember,
    replay,
    specs_payload,
)
from strandline.protocol.shards import Cursor, OpEntry, OpKind, Outcome, ParkReason, ShardSpec

DONE = Outcome(OpKind.CHECKPOINT, 5)


def derived(context: str, data: bytes) -> int:
    return int.from_bytes(blake3(data, derive_key_context=context).digest()[:8], "little", signed=True)


def test_an_operation_id_is_derived_from_run_shard_fence_and_kind() -> None:
    data = b"".join(number.to_bytes(8, "little", signed=True) for number in (7, -9, 3)) + b"\x01"
    assert op_id(7, -9, 3, OpKind.COMPLETE) == derived("gossip.scanner_runtime.distributed.op_id", data)
    ids = {op_id(7, -9, fence, kind, number) for fence in (1, 2) for kind in OpKind for number in range(3)}
    assert len(ids) == 2 * len(OpKind) * 3


def test_payload_hashes_are_of_the_tag_and_the_content() -> None:
    def hashed(data: bytes) -> int:
        return derived("gossip/coord/v1/op-payload", data) % 2**64

    assert payload_hash(OpKind.CHECKPOINT, cursor_payload(Cursor(b"k", b"to"))) == hashed(
        b"checkpoint\x01\0\0\0k\x02\0\0\0to"
    )
    assert payload_hash(OpKind.PARK, park_payload(ParkReason.OTHER)) == hashed(b"park\x04")
    assert payload_hash(OpKind.SPLIT_REPLACE, specs_payload((ShardSpec(b"a", b"b", b"m"),))) == hashed(
        b"split_replace\x01\0\0\0\x01\0\0\0a\x01\0\0\0b\x01\0\0\0m"
    )


def test_payloads_of_shifted_bytes_differ() -> None:
    assert cursor_payload(Cursor(b"ab", b"c")) != cursor_payload(Cursor(b"a", b"bc"))
    assert specs_payload((ShardSpec(b"a", b"b"),)) != specs_payload((ShardSpec(b"a", b"", b"b"),))


def test_the_oldest_operations_are_forgotten_first() -> None:
    ops: tuple[OpEntry, ...] = ()
    for number in range(5):
        ops = remember(ops, OpEntry(number, 1, DONE), 3)
    assert [entry.op_id for entry in ops] == [2, 3, 4]
    assert replay(ops, 1, 1) is None
    assert replay(ops, 2, 1) is DONE
    with pytest.raises(OpIdConflict):
        replay(ops, 2, 2)


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidInput):
        replay((), 2**63, 1)
    with pytest.raises(InvalidInput):
        remember((), OpEntry(1, 1, Outcome(OpKind.PARK, 2**63)), 3)

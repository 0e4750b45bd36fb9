"""What headers say about tracing."""

import pytest

from strandline.broker.api.trace_headers import TraceRequest, is_sampled, parse_trace, without_trace

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"


@pytest.mark.parametrize(
    ("dest", "only", "expected"),
    [
        (b"d", b"", TraceRequest(b"d")),
        (b"d", b"TRUE", TraceRequest(b"d", only=True)),
        (b"d", b"on", TraceRequest(b"d", only=True)),
        (b"d", b"yes", TraceRequest(b"d")),
        (b"", b"true", None),
        (b"trace disabled", b"true", None),
        (b"a b", b"", TraceRequest(b"")),
        (b"a.>", b"true", TraceRequest(b"", only=True)),
        (b"a 1 1\nPING", b"", TraceRequest(b"")),
    ],
)
def test_a_trace_has_a_destination(dest: bytes, only: bytes, expected: TraceRequest | None) -> None:
    block = b"NATS/1.0\r\nNats-Trace-Dest: %s\r\nNats-Trace-Only: %s\r\n\r\n" % (dest, only)
    assert parse_trace(block) == expected


def test_the_first_line_is_no_header_and_the_first_of_several_counts() -> None:
    assert parse_trace(b"Nats-Trace-Dest: d\r\nNats-Trace-Only: 1\r\n\r\n") is None
    assert parse_trace(b"NATS/1.0\r\nNats-Trace-Dest: a\r\nNats-Trace-Dest: b\r\n\r\n") == TraceRequest(b"a")


def test_what_is_stored_is_not_traced_again() -> None:
    block = b"NATS/1.0\r\nA: b\r\nNats-Trace-Dest: there\r\nC: Nats-Trace-Dest: x\r\n\r\n"
    stored = b"NATS/1.0\r\nA: b\r\nNats-Trace-Dest: trace disabled\r\nC: Nats-Trace-Dest: x\r\n\r\n"
    assert without_trace(block) == stored


@pytest.mark.parametrize(
    ("value", "expected"),
    [(PARENT + b"01", True), (PARENT + b"03", True), (PARENT + b"00", False), (PARENT + b"1", False), (b"junk", False)],
)
def test_only_a_sampled_parent_is_traced(value: bytes, expected: bool) -> None:
    assert is_sampled(b"NATS/1.0\r\nTraceParent: " + value + b"\r\n\r\n") is expected

"""A consumer in an archive: its configuration and position, in nats-server's JSON.

Invariants: pure; `parse_saved` reads what `format_saved` writes, and refuses sequences that no stream can have. A time
is that of the last delivery of a message; its deadline follows from the configuration.
"""

from typing import Any

from strandline.broker.api.codes import ApiError
from strandline.broker.api.consumer_checks import ACK_WAIT_DEFAULT
from strandline.broker.api.consumer_config import ConsumerConfig
from strandline.broker.api.json_text import read_json, write_json
from strandline.broker.api.schema import SEQUENCE_MAX, from_plain, to_plain
from strandline.broker.consumers.state import ConsumerState, SavedPosition
from strandline.broker.snapshots.archive import BadArchive

DELIVERIES_MAX = 1 << 31


def saved(state: ConsumerState, last_seq: int = SEQUENCE_MAX) -> SavedPosition:
    """Return where a consumer is, in a stream that ends with a sequence."""
    pending, deadlines = state.pending, state.pending.deadlines()
    outstanding = {
        sequence: (consumer_seq, deadlines.get(sequence, 0), pending.count(sequence))
        for sequence, consumer_seq in pending.first.items()
        if sequence <= last_seq
    }
    return SavedPosition(
        (state.delivered_consumer, min(state.delivered_stream, last_seq)),
        (state.floor_consumer, min(state.floor_stream, last_seq)),
        outstanding,
    )


def format_saved(config: ConsumerConfig, where: SavedPosition) -> bytes:
    """Return a consumer as JSON."""
    wait_ns = config.ack_wait or ACK_WAIT_DEFAULT
    state: dict[str, Any] = {"delivered": _pair(where.delivered), "ack_floor": _pair(where.floor)}
    if where.pending:
        state["pending"] = {
            str(sequence): {"Sequence": consumer_seq, "Timestamp": max(0, deadline_ns - wait_ns)}
            for sequence, (consumer_seq, deadline_ns, _) in sorted(where.pending.items())
        }
    again = {str(sequence): count - 1 for sequence, (_, _, count) in sorted(where.pending.items()) if count > 1}
    if again:
        state["redelivered"] = again
    return write_json({"config": to_plain(config), "state": state})


def _pair(both: tuple[int, int]) -> dict[str, int]:
    return {"consumer_seq": both[0], "stream_seq": both[1]}


def parse_saved(data: bytes) -> tuple[ConsumerConfig, SavedPosition]:
    """Return a consumer's configuration and where it is; `BadArchive` if that cannot be read."""
    try:
        plain = read_json(data)
        config = from_plain(ConsumerConfig, plain["config"])
        state = plain.get("state") or {}
        again = {_sequence(key): _sequence(count) for key, count in (state.get("redelivered") or {}).items()}
        wait_ns = config.ack_wait or ACK_WAIT_DEFAULT
        pending = {}
        for key, part in (state.get("pending") or {}).items():
            sequence, deadline_ns = _sequence(key), int(part["Timestamp"]) + wait_ns
            deliveries = min(again.get(sequence, 0) + 1, DELIVERIES_MAX)
            pending[sequence] = _sequence(part["Sequence"]), max(0, min(deadline_ns, SEQUENCE_MAX)), deliveries
        return config, SavedPosition(_both(state.get("delivered")), _both(state.get("ack_floor")), pending)
    except (ApiError, KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise BadArchive(f"a consumer cannot be read: {error}") from error


def _both(part: dict[str, Any] | None) -> tuple[int, int]:
    part = part or {}
    return _sequence(part.get("consumer_seq", 0)), _sequence(part.get("stream_seq", 0))


def _sequence(value: Any) -> int:  # noqa: ANN401 - any JSON value
    number = int(value)
    if not 0 <= number <= SEQUENCE_MAX:
        raise ValueError(f"{number} is not a sequence")
    return number

"""Delete markers: which messages are followed by one when their time is over."""

import pytest

from strandline.broker.streams.delete_markers import is_marker
from tests.broker.streams.helpers import SECOND, Kept


@pytest.mark.parametrize("line", ["KV-Operation: PURGE", "KV-Operation:PURGE", "Nats-Marker-Reason: Purge"])
def test_what_says_that_nothing_is_there_is_a_marker(line: str) -> None:
    assert is_marker(f"NATS/1.0\r\nA: b\r\n{line}\r\n\r\n".encode())


@pytest.mark.parametrize(
    "line",
    [
        "KV-Operation: DEL",
        "KV-Operation: purge",
        "kv-operation: PURGE",
        "KV-Operation: PURGE ",
        "X-KV-Operation: PURGE",
    ],
)
def test_everything_else_is_none(line: str) -> None:
    assert not is_marker(f"NATS/1.0\r\nA: b\r\n{line}\r\n\r\n".encode())


@pytest.mark.parametrize(("operation", "held"), [("PURGE", []), ("DEL", [(2, "s.a", "")])])
def test_the_purge_of_a_key_goes_without_a_marker(operation: str, held: list[tuple[int, str, str]]) -> None:
    kept = Kept(allow_msg_ttl=True, allow_rollup_hdrs=True, subject_delete_marker_ttl=60 * SECOND)
    kept.publish(("s.a", "", {"KV-Operation": operation, "Nats-Rollup": "sub", "Nats-TTL": "60"}))
    kept.clock.advance(61)
    kept.stream.expire(kept.clock.now_ns())
    assert kept.held() == held


@pytest.mark.parametrize("proper", [True, False])
def test_a_rollup_on_a_subject_with_wildcards_is_the_same_after_a_restart(proper: bool) -> None:
    kept = Kept(allow_rollup_hdrs=True)
    kept.publish(("s.a", "1"), ("s.b", "2"), ("s.a.b", "3"), ("s.*", "4", {"Nats-Rollup": "sub"}), ("s.b", "5"))
    assert kept.sequences() == [3, 4, 5]
    kept.reopen(proper=proper)
    assert kept.sequences() == [3, 4, 5]

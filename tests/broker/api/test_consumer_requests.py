"""What clients ask of consumers is read as nats-server reads it: some of it strictly, some of it loosely."""

import pytest

from strandline.broker.api.codes import ApiError
from strandline.broker.api.consumer_requests import (
    BadPull,
    PullRequest,
    parse_names,
    parse_pause,
    parse_pull,
    parse_reset,
    parse_unpin,
)
from strandline.broker.api.times import ZERO_TIME_NS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", PullRequest(batch=1)),
        (b"  ", PullRequest(batch=1)),
        (b"7", PullRequest(batch=7)),
        (b" +12 ", PullRequest(batch=12)),
        (b"many", PullRequest(batch=1)),
        (b"{}", PullRequest()),
        (b'{"batch":3,"no_wait":true,"who":"knows"}', PullRequest(batch=3, no_wait=True)),
        (b'{"Batch":3,"EXPIRES":5}', PullRequest(batch=3, expires=5)),
        (b'{"batch":null}', PullRequest()),
        (b'{"expires":10,"idle_heartbeat":5}', PullRequest(expires=10, idle_heartbeat=5)),
    ],
)
def test_a_pull_is_a_number_an_object_or_one_message(text: bytes, expected: PullRequest) -> None:
    assert parse_pull(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"batch":"x"}', "json: cannot unmarshal string into Go struct field .batch of type int"),
        (b'{"expires":10,"idle_heartbeat":6}', "heartbeat value too large"),
        (b'{"idle_heartbeat":1}', "heartbeat value too large"),
        (b"{nope", "invalid character 'n' looking for beginning of object key string"),
        (b"{", "unexpected end of JSON input"),
    ],
)
def test_a_pull_that_cannot_be_read_is_refused_in_the_servers_words(text: bytes, problem: str) -> None:
    with pytest.raises(BadPull) as caught:
        parse_pull(text)
    assert str(caught.value) == problem


def test_what_is_no_object_asks_for_everything() -> None:
    assert parse_names(b"nope").offset == 0
    assert parse_names(b'{"offset":3}').offset == 3
    with pytest.raises(ApiError, match="unknown field"):
        parse_names(b'{"other":3}')


def test_what_is_no_object_means_to_go_on() -> None:
    assert parse_pause(b"").pause_until == parse_pause(b"nope").pause_until == ZERO_TIME_NS
    assert parse_pause(b'{"pause_until":"2024-01-01T00:00:00Z"}').pause_until == 1_704_067_200_000_000_000


def test_resets_and_unpins_may_hold_anything_else() -> None:
    assert parse_reset(b"").seq == 0
    assert parse_reset(b'{"seq":4,"who":1}').seq == 4
    assert parse_unpin(b'{"group":"g","who":1}').group == "g"
    with pytest.raises(ApiError, match="consumer group not specified"):
        parse_unpin(b"{}")
    with pytest.raises(ApiError, match="invalid JSON: unexpected end of JSON input"):
        parse_unpin(b"")

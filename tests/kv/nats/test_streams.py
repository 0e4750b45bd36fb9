"""What streams and stored messages say, parsed: whole, in part, and not at all."""

import base64
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import FormatError
from strandline.kv import Discard, StoreConfig, UpdateKind
from strandline.kv.nats import layout
from strandline.kv.nats.bucket_reader import kinds_of
from strandline.kv.nats.layout import format_stream_differences, read_prefix, retention_of, stream_config
from strandline.kv.nats.messages import kind_of_headers, parse_stored
from strandline.nats.streams import (
    StreamState,
    parse_answer,
    parse_header_values,
    parse_stream_info,
    parse_time,
    stream_identity,
)


def info(config: dict[str, Any], **state: int) -> StreamState:
    counts = {"messages": 3, "bytes": 9, "first_seq": 5, "last_seq": 9} | state
    return parse_stream_info(
        {"config": {"name": "KV_b", **config}, "created": "2026-01-02T03:04:05.6Z", "state": counts}
    )


@given(
    st.builds(
        StoreConfig,
        history=st.integers(1, 64),
        updates_max=st.integers(0, 1000),
        bytes_max=st.integers(0, 10**9),
        value_bytes_max=st.integers(0, 10**6),
        age_max_s=st.sampled_from([0.0, 0.5, 60.0]),
        discard=st.sampled_from(Discard),
        ttl=st.booleans(),
        marker_ttl_s=st.sampled_from([0.0, 2.0]),
        replicas=st.integers(1, 5),
    )
)
def test_settings_are_the_same_after_a_round_to_the_server_and_back(config: StoreConfig) -> None:
    state = info(stream_config("b", config))
    assert format_stream_differences(config, state) == ""
    evicts = config.evicts_current_values or config.marker_ttl_s > 0
    assert retention_of(state).evicts_current_values == evicts


@pytest.mark.parametrize(
    ("config", "evicts", "is_age_only"),
    [
        ({"discard": "new", "max_msgs": 5}, False, False),
        ({"discard": "old"}, False, False),
        ({"discard": "old", "max_bytes": 5}, True, False),
        ({"max_age": 5}, True, True),
        ({"max_age": 5, "allow_msg_ttl": True}, True, False),
        ({"retention": "workqueue"}, True, False),
        ({"mirror": {"name": "KV_o"}}, True, False),
        ({"sources": [{"name": "KV_o"}]}, True, False),
    ],
)
def test_what_may_lose_a_current_value_says_so(config: dict[str, Any], evicts: bool, is_age_only: bool) -> None:
    retention = retention_of(info(config))
    assert (retention.evicts_current_values, retention.age_only) == (evicts, is_age_only)


def test_an_empty_stream_begins_with_the_message_to_come() -> None:
    assert info({}, messages=0, first_seq=0, last_seq=0).first == 1
    assert info({}, messages=0, first_seq=10, last_seq=9).first == 10
    assert info({}).first == 5


@pytest.mark.parametrize(
    ("config", "prefix", "write_prefix"),
    [
        ({"subjects": ["$KV.b.>"]}, "$KV.b.", "$KV.b."),
        ({}, "$KV.b.", "$KV.b."),
        ({"mirror": {"name": "KV_o"}}, "$KV.o.", "$KV.o."),
        ({"mirror": {"name": "KV_o", "external": {"api": "$JS.hub.API"}}}, "$KV.o.", "$JS.hub.API.$KV.o."),
        (
            {"mirror": {"name": "KV_o", "subject_transforms": [{"src": "$KV.o.>", "dest": "$KV.b.>"}]}},
            "$KV.b.",
            "$KV.o.",
        ),
    ],
)
def test_keys_are_read_and_written_where_the_stream_has_them(
    config: dict[str, Any], prefix: str, write_prefix: str
) -> None:
    state = info(config)
    assert (read_prefix(state), layout.write_prefix(state)) == (prefix, write_prefix)


def test_an_identity_is_of_name_and_time() -> None:
    assert len({stream_identity(name, time) for name in ("a", "b") for time in ("1", "2")}) == 4
    assert len(stream_identity("a", "1")) == 8


@pytest.mark.parametrize("answer", [{}, {"config": {}, "state": {}}, {"config": None, "state": None, "created": ""}])
def test_an_answer_that_says_nothing_of_a_stream_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        parse_stream_info(answer)
    with pytest.raises(FormatError):
        parse_stored(answer)


@given(st.binary(max_size=40))
def test_an_answer_is_an_object_or_refused(data: bytes) -> None:
    try:
        assert isinstance(parse_answer(data), dict)
    except FormatError as refused:
        assert str(refused)  # noqa: PT017 - either is right


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({}, UpdateKind.PUT),
        ({"KV-Operation": "DEL"}, UpdateKind.DELETE),
        ({"KV-Operation": "PURGE", "Nats-Rollup": "sub"}, UpdateKind.PURGE),
        ({"KV-Operation": "PUT"}, UpdateKind.PUT),
        ({"Nats-Marker-Reason": "MaxAge"}, UpdateKind.PURGE),
        ({"Nats-Marker-Reason": "Purge"}, UpdateKind.PURGE),
        ({"Nats-Marker-Reason": "Remove"}, UpdateKind.DELETE),
        ({"Nats-Marker-Reason": "Other"}, UpdateKind.PUT),
        ({"nats-marker-reason": "MaxAge"}, UpdateKind.PUT),
        ({"kv-operation": "DEL"}, UpdateKind.PUT),
        ({"Traceparent": "DEL"}, UpdateKind.PUT),
    ],
)
def test_headers_tell_what_a_message_did(headers: dict[str, str], kind: UpdateKind) -> None:
    block = b"NATS/1.0\r\n" + b"".join(f"{name}: {text}\r\n".encode() for name, text in headers.items()) + b"\r\n"
    assert parse_header_values(block) == headers
    assert kind_of_headers(headers) is kind
    assert kinds_of(pa.array([block], pa.binary()), 1).tolist() == [kind]
    message = {"seq": 7, "hdrs": base64.b64encode(block).decode(), "time": "1970-01-01T00:00:01Z"}
    stored = parse_stored({"message": message})
    assert (stored.revision, stored.kind, stored.value, stored.created_ns) == (7, kind, b"", 10**9)


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), st.integers(0, 999))  # noqa: DTZ001 - made aware below
def test_times_keep_their_nanoseconds(moment: datetime, nanoseconds: int) -> None:
    aware = moment.replace(tzinfo=UTC)
    text = f"{aware:%Y-%m-%dT%H:%M:%S}.{aware.microsecond:06}{nanoseconds:03}".zfill(29)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    wanted = ((since.days * 86_400 + since.seconds) * 10**6 + since.microseconds) * 1000 + nanoseconds
    assert parse_time(f"{text.rstrip('0').rstrip('.') if '.' in text else text}Z") == wanted

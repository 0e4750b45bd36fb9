"""Streams by nats-py: made, changed, filled, read, purged, sealed; each limit and each way of storing."""

import asyncio
import json
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext, api
from nats.js.errors import BadRequestError, NoStreamResponseError, NotFoundError, ServerError, ServiceUnavailableError

from tests.broker.clients.servers import WITHIN_S, StartServer, connected, eventually

STORAGES = [api.StorageType.FILE, api.StorageType.MEMORY]


async def _filled(js: JetStreamContext, name: str, count: int = 6, **config: Any) -> None:  # noqa: ANN401
    await js.add_stream(name=name, subjects=[f"{name}.>"], **config)
    for number in range(count):
        await js.publish(f"{name}.{number % 3}", b"m%d" % number)


async def _request(nc: Client, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = await nc.request(f"$JS.API.{subject}", json.dumps(body).encode() if body else b"", timeout=WITHIN_S)
    parsed: dict[str, Any] = json.loads(answer.data)
    return parsed


@pytest.mark.parametrize("storage", STORAGES)
async def test_a_stream_is_made_filled_changed_and_deleted(js: JetStreamContext, name: str, storage: str) -> None:
    info = await js.add_stream(name=name, subjects=[f"{name}.>"], storage=storage, metadata={"a": "b"})
    assert (info.config.storage, info.did_create, info.state.messages) == (storage, True, 0)
    for number in range(3):
        ack = await js.publish(f"{name}.a", b"x", stream=name)
        assert (ack.stream, ack.seq, ack.duplicate) == (name, number + 1, None)
    changed = await js.update_stream(name=name, subjects=[f"{name}.>"], storage=storage, max_msgs=2, description="d")
    assert (changed.config.max_msgs, changed.config.description) == (2, "d")
    state = (await js.stream_info(name)).state
    assert (state.messages, state.first_seq, state.last_seq) == (2, 2, 3)
    assert await js.find_stream_name_by_subject(f"{name}.a") == name
    assert name in [each.config.name for each in await js.streams_info()]
    assert name in [each.config.name for each in await js.streams_info_iterator()]
    assert await js.delete_stream(name)
    with pytest.raises(NotFoundError):
        await js.stream_info(name)


async def test_what_cannot_be_made_or_changed_is_refused(js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=name, subjects=[f"{name}.>"])
    await js.add_stream(name=name, subjects=[f"{name}.>"])
    with pytest.raises(BadRequestError, match="different configuration"):
        await js.add_stream(name=name, subjects=[f"{name}.>"], max_msgs=1)
    with pytest.raises(BadRequestError, match="overlap"):
        await js.add_stream(name=f"{name}-2", subjects=[f"{name}.a"])
    with pytest.raises(ServerError, match="replicas > 1 not supported in non-clustered mode"):
        await js.add_stream(name=f"{name}-2", subjects=["other"], num_replicas=3)
    with pytest.raises(ServerError, match="storage"):
        await js.update_stream(name=name, subjects=[f"{name}.>"], storage=api.StorageType.MEMORY)
    with pytest.raises(NotFoundError):
        await js.update_stream(name=f"{name}-2", subjects=["other"])
    with pytest.raises(NotFoundError):
        await js.delete_stream(f"{name}-2")


async def test_messages_are_read_by_sequence_and_by_subject(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, allow_direct=True)
    await js.publish(f"{name}.h", b"body", headers={"A": "1", "B": "two"})
    for direct in (False, True):
        first = await js.get_msg(name, 1, direct=direct)
        assert (first.subject, first.seq, first.data, first.headers if not direct else None) == (
            f"{name}.0",
            1,
            b"m0",
            None,
        )
        last = await js.get_last_msg(name, f"{name}.1", direct=direct)
        assert (last.seq, last.data) == (5, b"m4")
        following = await js.get_msg(name, seq=3, subject=f"{name}.1", next=True, direct=direct)
        assert following.seq == 5
        headed = await js.get_msg(name, 7, direct=direct)
        assert (headed.headers or {})["B"] == "two"
        with pytest.raises(NotFoundError):
            await js.get_msg(name, 99, direct=direct)


async def test_purges_take_what_they_are_told_to(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 12)
    assert await js.purge_stream(name, subject=f"{name}.0", keep=1)
    assert (await js.stream_info(name, subjects_filter=">")).state.subjects == {
        f"{name}.0": 1,
        f"{name}.1": 4,
        f"{name}.2": 4,
    }
    assert await js.purge_stream(name, seq=6)
    assert (await js.stream_info(name)).state.first_seq == 6
    assert await js.purge_stream(name)
    state = (await js.stream_info(name)).state
    assert (state.messages, state.first_seq, state.last_seq) == (0, 13, 12)
    assert (await js.publish(f"{name}.0")).seq == 13


async def test_a_deleted_message_leaves_a_gap(nc: Client, js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    assert await js.delete_msg(name, 3)
    with pytest.raises(BadRequestError, match="sequence 3 not found"):
        await js.delete_msg(name, 3)
    info = await _request(nc, f"STREAM.INFO.{name}", {"deleted_details": True})
    assert (info["state"]["num_deleted"], info["state"]["deleted"]) == (1, [3])


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({"max_msgs": 2}, [5, 6]),
        ({"max_msgs_per_subject": 1}, [4, 5, 6]),
        ({"max_age": 0.3, "duplicate_window": 0.1}, []),
    ],
)
async def test_old_messages_make_room(
    js: JetStreamContext, name: str, storage: str, config: dict[str, Any], kept: list[int]
) -> None:
    await _filled(js, name, storage=storage, **config)
    if "max_age" in config:
        await eventually(lambda: _is_empty(js, name))
    state = (await js.stream_info(name)).state
    assert list(range(state.first_seq, state.last_seq + 1))[-len(kept) or 99 :] == kept
    assert state.messages == len(kept)


async def _is_empty(js: JetStreamContext, name: str) -> bool:
    return (await js.stream_info(name)).state.messages == 0


@pytest.mark.parametrize("storage", STORAGES)
async def test_a_stream_holds_no_more_bytes_than_it_may(js: JetStreamContext, name: str, storage: str) -> None:
    await _filled(js, name, 20, storage=storage, max_bytes=500)
    state = (await js.stream_info(name)).state
    assert 0 < state.bytes <= 500
    assert (state.messages, state.last_seq) == (21 - state.first_seq, 20)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"max_msgs": 1}, "maximum messages exceeded"),
        ({"max_bytes": 90}, "maximum bytes exceeded"),
        ({"max_msgs_per_subject": 1, "discard_new_per_subject": True}, "maximum messages per subject exceeded"),
    ],
)
async def test_a_full_stream_refuses_if_it_was_told_to(
    js: JetStreamContext, name: str, config: dict[str, Any], why: str
) -> None:
    await js.add_stream(name=name, subjects=[name], discard=api.DiscardPolicy.NEW, **config)
    await js.publish(name, b"x")
    with pytest.raises(ServiceUnavailableError, match=why):
        await js.publish(name, b"x")
    await js.purge_stream(name)
    await js.publish(name, b"x")


async def test_a_message_too_big_is_refused(js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=name, subjects=[name], max_msg_size=10)
    await js.publish(name, bytes(10))
    with pytest.raises(BadRequestError, match="message size exceeds maximum allowed"):
        await js.publish(name, bytes(11))


async def test_a_message_sent_twice_is_stored_once(js: JetStreamContext, name: str) -> None:
    headers = {"Nats-Msg-Id": "one"}
    await js.add_stream(name=name, subjects=[name], duplicate_window=600)
    first, again = await asyncio.gather(*[js.publish(name, b"x", headers=headers) for _ in range(2)])
    assert (first.seq, first.duplicate, again.seq, again.duplicate) == (1, None, 1, True)


async def test_a_message_sent_again_after_a_while_is_stored_again(js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=name, subjects=[name], duplicate_window=0.2)

    async def is_stored_again() -> bool:
        return (await js.publish(name, b"x", headers={"Nats-Msg-Id": "one"})).seq == 2

    await eventually(is_stored_again)


async def test_publishers_expect_and_are_told(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 3)
    wrong = {
        "Nats-Expected-Stream": "other",
        "Nats-Expected-Last-Sequence": "1",
        "Nats-Expected-Last-Subject-Sequence": "99",
        "Nats-Expected-Last-Msg-Id": "none",
    }
    for header, value in wrong.items():
        with pytest.raises(BadRequestError) as refused:
            await js.publish(f"{name}.0", b"x", headers={header: value})
        assert refused.value.err_code in (10060, 10071, 10070)
    ack = await js.publish(f"{name}.0", headers={"Nats-Expected-Last-Sequence": "3", "Nats-Expected-Stream": name})
    assert ack.seq == 4
    assert (await js.publish(f"{name}.0", headers={"Nats-Expected-Last-Subject-Sequence": "4"})).seq == 5


async def test_many_publishes_at_once_are_all_acknowledged(js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=name, subjects=[name])
    futures = [await js.publish_async(name, b"%d" % number) for number in range(300)]
    await js.publish_async_completed()
    assert [(await future).seq for future in futures] == list(range(1, 301))
    acks = await asyncio.gather(*[js.publish(name, b"x") for _ in range(50)])
    assert sorted(ack.seq for ack in acks) == list(range(301, 351))


async def test_publishing_where_no_stream_listens_fails(js: JetStreamContext, name: str) -> None:
    with pytest.raises(NoStreamResponseError, match="no response from stream"):
        await js.publish(name)


async def test_a_rollup_takes_the_place_of_what_was_before(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, allow_rollup_hdrs=True)
    await js.publish(f"{name}.1", b"sum", headers={"Nats-Rollup": "sub"})
    assert (await js.stream_info(name, subjects_filter=f"{name}.1")).state.subjects == {f"{name}.1": 1}
    await js.publish(f"{name}.0", b"all", headers={"Nats-Rollup": "all"})
    assert (await js.stream_info(name)).state.messages == 1


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(
    ("pattern", "kept"),
    [("*", [3, 4, 6, 7]), ("a.*", [1, 2, 4, 5, 7]), (">", [7]), ("a.b*", [1, 2, 3, 4, 5, 6, 7])],
)
async def test_a_rollup_on_a_subject_with_wildcards_takes_the_place_of_all_that_it_matches(
    js: JetStreamContext, name: str, storage: str, pattern: str, kept: list[int]
) -> None:
    await js.add_stream(name=name, subjects=[f"{name}.>"], storage=storage, allow_rollup_hdrs=True, allow_direct=True)
    for subject in ("a", "b", "a.b", "c.d", "*", "a.*"):
        await js.publish(f"{name}.{subject}", b"x")
    await js.publish(f"{name}.{pattern}", b"sum", headers={"Nats-Rollup": "sub"})
    found = []
    for sequence in range(1, 8):
        try:
            found.append((await js.get_msg(name, sequence)).seq)
        except NotFoundError:
            continue
    assert found == kept


@pytest.mark.parametrize("storage", STORAGES)
async def test_deleting_what_is_not_there_is_told_as_its_storage_tells_it(
    nc: Client, js: JetStreamContext, name: str, storage: api.StorageType
) -> None:
    await _filled(js, name, 5, storage=storage)
    for sequence in (1, 3, 5):
        assert await js.delete_msg(name, sequence)
    told = {}
    for sequence in (0, 1, 3, 5, 9):
        refused = (await _request(nc, f"STREAM.MSG.DELETE.{name}", {"seq": sequence}))["error"]
        told[sequence] = refused["code"], refused["err_code"], refused["description"]
    expected = {sequence: (400, 10043, f"sequence {sequence} not found") for sequence in told}
    if storage is api.StorageType.FILE:
        expected |= dict.fromkeys((0, 1), (500, 10057, "no message found")) | {9: (500, 10057, "stream store EOF")}
    assert told == expected


async def test_denied_and_sealed_streams(js: JetStreamContext, name: str) -> None:
    await _filled(js, name, deny_delete=True, deny_purge=True)
    with pytest.raises(ServerError):
        await js.delete_msg(name, 1)
    with pytest.raises(ServerError):
        await js.purge_stream(name)
    await js.update_stream(name=name, subjects=[f"{name}.>"], deny_delete=True, deny_purge=True, sealed=True)
    with pytest.raises(BadRequestError, match="sealed"):
        await js.publish(f"{name}.1", b"x")
    assert (await js.get_msg(name, 1)).data == b"m0"


async def test_messages_are_published_again_elsewhere(nc: Client, js: JetStreamContext, name: str) -> None:
    subscription = await nc.subscribe(f"again.{name}.>")
    republish = api.RePublish(src=f"{name}.*", dest=f"again.{name}.{{{{wildcard(1)}}}}")
    await js.add_stream(name=name, subjects=[f"{name}.>"], republish=republish)
    await js.publish(f"{name}.a", b"one", headers={"A": "b"})
    message = await subscription.next_msg(WITHIN_S)
    assert (message.subject, message.data) == (f"again.{name}.a", b"one")
    headers = message.headers or {}
    assert [headers[key] for key in ("A", "Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Last-Sequence")] == [
        "b",
        name,
        f"{name}.a",
        "1",
        "0",
    ]


async def test_subjects_are_transformed_as_they_are_stored(js: JetStreamContext, name: str) -> None:
    transform = api.SubjectTransform(src=f"{name}.*.*", dest=f"{name}.{{{{wildcard(2)}}}}.{{{{wildcard(1)}}}}")
    await js.add_stream(name=name, subjects=[f"{name}.>"], subject_transform=transform)
    await js.publish(f"{name}.a.b", b"x")
    assert (await js.get_msg(name, 1)).subject == f"{name}.b.a"


async def test_a_message_lives_as_long_as_it_asked_to(js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=name, subjects=[name], allow_msg_ttl=True)
    long = (await js.publish(name, b"long")).seq
    with pytest.raises(BadRequestError, match="invalid per-message TTL"):
        await js.publish(name, b"x", headers={"Nats-TTL": "1ms"})
    for ttl_s in (1, 10, 60):  # one that is over before a busy machine has looked shows nothing
        await js.publish(name, b"short", msg_ttl=ttl_s)
        if (await js.stream_info(name)).state.messages == 2:
            break
    else:
        pytest.fail("no message lived as long as it asked to")
    await eventually(lambda: _has_messages(js, name, 1))
    assert (await js.get_msg(name, long)).data == b"long"


async def _has_messages(js: JetStreamContext, name: str, count: int) -> bool:
    return (await js.stream_info(name)).state.messages == count


async def test_the_last_message_of_a_subject_leaves_a_marker(js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=name, subjects=[name], max_age=1, duplicate_window=0.1, subject_delete_marker_ttl=60)
    await js.publish(name, b"x")
    await eventually(lambda: _last_sequence(js, name, 2))
    marker = await js.get_msg(name, 2)
    assert (marker.headers or {})["Nats-Marker-Reason"] == "MaxAge"


@pytest.mark.parametrize(("operation", "markers"), [("PURGE", 0), ("DEL", 1)])
async def test_the_purge_of_a_key_leaves_no_marker_when_its_time_is_over(
    js: JetStreamContext, name: str, operation: str, markers: int
) -> None:
    config: dict[str, Any] = {"allow_msg_ttl": True, "subject_delete_marker_ttl": 1, "allow_rollup_hdrs": True}
    await js.add_stream(name=name, subjects=[name], max_msgs_per_subject=1, **config)
    await js.publish(name, b"x")
    headers = {"KV-Operation": operation, "Nats-Rollup": "sub", "Nats-TTL": "1"}
    assert (await js.publish(name, b"", headers=headers)).seq == 2
    if markers:
        await eventually(lambda: _last_sequence(js, name, 2 + markers))
    await eventually(lambda: _has_messages(js, name, 0))  # the marker has gone, too
    assert (await js.stream_info(name)).state.last_seq == 2 + markers


async def _last_sequence(js: JetStreamContext, name: str, sequence: int) -> bool:
    return (await js.stream_info(name)).state.last_seq == sequence


async def test_counters_count(js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=name, subjects=[name], allow_msg_counter=True, allow_direct=True)
    values = [(await js.publish(name, headers={"Nats-Incr": by})).val for by in ("1", "+41", "-2")]
    assert values == ["1", "42", "40"]
    assert (await js.get_last_msg(name, name)).data == b'{"val":"40"}'


async def test_a_batch_is_stored_as_a_whole_or_not_at_all(nc: Client, js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=name, subjects=[name], allow_atomic=True)
    for number in (1, 2, 3):
        headers = {
            "Nats-Batch-Id": "b",
            "Nats-Batch-Sequence": str(number),
            **({"Nats-Batch-Commit": "1"} if number == 3 else {}),
        }
        answer = await nc.request(name, b"x", WITHIN_S, headers=headers)
        if number < 3:
            assert answer.data == b""
            assert (await js.stream_info(name)).state.messages == 0
    assert json.loads(answer.data) == {"stream": name, "seq": 3, "batch": "b", "count": 3}
    gap = await nc.request(name, b"x", WITHIN_S, headers={"Nats-Batch-Id": "c", "Nats-Batch-Sequence": "2"})
    assert json.loads(gap.data)["error"]["err_code"] == 10176


async def test_many_messages_are_got_by_one_request(nc: Client, js: JetStreamContext, name: str) -> None:
    await _filled(js, name, 9, allow_direct=True)
    inbox = nc.new_inbox()
    subscription = await nc.subscribe(inbox)
    for body, sequences in (
        ({"batch": 4, "seq": 2}, ["2", "3", "4", "5"]),
        ({"multi_last": [f"{name}.>"]}, ["7", "8", "9"]),
    ):
        await nc.publish(f"$JS.API.DIRECT.GET.{name}", json.dumps(body).encode(), reply=inbox)
        got = [await subscription.next_msg(WITHIN_S) for _ in range(len(sequences) + 1)]
        assert [(message.headers or {}).get("Nats-Sequence") for message in got[:-1]] == sequences
        assert (got[-1].headers or {})["Status"] == "204"


async def test_what_was_stored_is_there_after_a_restart(launch: StartServer, name: str) -> None:
    server = launch()
    async with connected(server.url) as client:
        js = client.jetstream(timeout=WITHIN_S)
        await _filled(js, name, 9, max_msgs_per_subject=2)
        await js.delete_msg(name, 7)
        before = await _request(client, f"STREAM.INFO.{name}", {"subjects_filter": ">", "deleted_details": True})
    for kill in (False, True):
        server.restart(kill=kill)
        async with connected(server.url) as client:
            after = await _request(client, f"STREAM.INFO.{name}", {"subjects_filter": ">", "deleted_details": True})
            assert {**after, "ts": ""} == {**before, "ts": ""}
            assert (await client.jetstream(timeout=WITHIN_S).get_msg(name, 9)).data == b"m8"


async def test_what_an_account_uses_is_told(nc: Client, js: JetStreamContext, name: str) -> None:
    before = await js.account_info()
    await _filled(js, name)
    after = await js.account_info()
    assert after.streams == before.streams + 1
    assert after.storage > before.storage
    assert after.api.level == 5
    assert (await _request(nc, "STREAM.NAMES", {"subject": f"{name}.a"}))["streams"] == [name]

"""A stream with its consumers is moved from one server to another by a snapshot, whichever of the two it comes from."""

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from strandline.broker.snapshots.archive import Archived
from tests.broker.clients.servers import KINDS, connected, eventually, settled
from tests.broker.snapshots.packing import packed
from tests.servers_nats import NatsServer
from tests.waiting import PATIENCE_S

API = "$JS.API"
CHUNK = 64 << 10
WINDOW = 256 << 10


async def _ask(client: Client, subject: str, payload: object = b"") -> Any:  # noqa: ANN401 - whatever JSON holds
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    answer = await client.request(subject, body, timeout=PATIENCE_S)
    return json.loads(answer.data) if answer.data else None


async def _fill(client: Client, name: str, count: int) -> None:
    await _ask(client, f"{API}.STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "allow_direct": True})
    js = client.jetstream(timeout=PATIENCE_S)
    for number in range(count):
        headers = {"Number": str(number)} if number % 3 else None
        await client.publish(f"{name}.{number % 7}", b"payload %d " % number * 20, headers=headers)
    await client.publish(f"{name}.large", b"ab" * 100_000)
    await settled(client)
    for sequence in (1, 9, 10):
        await _ask(client, f"{API}.STREAM.MSG.DELETE.{name}", {"seq": sequence})
    consumer = await js.pull_subscribe(f"{name}.>", "reader", stream=name)
    got = await consumer.fetch(5, timeout=PATIENCE_S)
    await got[0].ack_sync(PATIENCE_S)
    await got[2].ack_sync(PATIENCE_S)
    await client.request(got[3].reply, b"-NAK", timeout=PATIENCE_S)
    again = await consumer.fetch(1, timeout=PATIENCE_S)
    assert again[0].metadata.num_delivered == 2


async def _snapshot(client: Client, name: str) -> tuple[Any, list[bytes]]:
    while True:
        sub = await client.subscribe(f"snapshot.{name}.{uuid.uuid4().hex}", pending_bytes_limit=-1)
        request = {"deliver_subject": sub.subject, "chunk_size": CHUNK, "window_size": WINDOW}
        answer = await _ask(client, f"{API}.STREAM.SNAPSHOT.{name}", request)
        status, chunks = await _received(client, sub)
        await sub.unsubscribe()
        if status != "408":  # the server gives a client up that stalls for seconds
            assert status in ("", "204")
            return answer, chunks


async def _received(client: Client, sub: Subscription) -> tuple[str, list[bytes]]:
    """Return the chunks of a snapshot, and the status that ended it."""
    chunks: list[bytes] = []
    while (message := await sub.next_msg(PATIENCE_S)).data:
        chunks.append(message.data)
        if message.reply:
            await client.publish(message.reply, b"")
    return (message.headers or {}).get("Status", ""), chunks


async def _restore(client: Client, name: str, saved: Any, chunks: list[bytes]) -> Any:  # noqa: ANN401
    answer = await _ask(client, f"{API}.STREAM.RESTORE.{name}", {"config": saved["config"], "state": saved["state"]})
    to = answer["deliver_subject"]
    for chunk in chunks:
        assert await _ask(client, to, chunk) is None
    return await _ask(client, to)


def _without_places(info: Any) -> Any:  # noqa: ANN401
    for name in ("ts", "created", "cluster", "type", "last_active", "did_create", "total", "offset", "limit"):
        info.pop(name, None)
    for part in ("delivered", "ack_floor"):
        info.get(part, {}).pop("last_active", None)
    return info


async def _shown(client: Client, name: str) -> list[Any]:
    stream = await _ask(client, f"{API}.STREAM.INFO.{name}", {"deleted_details": True, "subjects_filter": ">"})
    consumer = await _ask(client, f"{API}.CONSUMER.INFO.{name}.reader")
    messages = [await _ask(client, f"{API}.STREAM.MSG.GET.{name}", {"seq": at}) for at in (2, 8, 11, 12, 60)]
    return [_without_places(stream), _without_places(consumer), messages]


@pytest.mark.parametrize(
    ("origin", "target"), [(one, other) for one in KINDS for other in KINDS if "strandline" in (one, other)]
)
async def test_a_stream_is_moved_with_everything_in_it(
    shared_servers: Callable[[str], NatsServer], origin: str, target: str
) -> None:
    name = f"MOVED_{origin[:1]}{target[:1]}".upper()
    async with connected(shared_servers(origin).url) as here, connected(shared_servers(target).url) as there:
        await _fill(here, name, 400)
        saved, chunks = await _snapshot(here, name)
        before = await _shown(here, name)
        await _ask(here, f"{API}.STREAM.DELETE.{name}")
        answer = await _restore(there, name, saved, chunks)
        assert "error" not in answer
        assert await _shown(there, name) == before
        js = there.jetstream(timeout=PATIENCE_S)
        assert (await js.publish(f"{name}.new", b"")).seq == 402
        consumer = await js.pull_subscribe(f"{name}.>", "reader", stream=name)
        sequences = {message.metadata.sequence.stream for message in await consumer.fetch(5, timeout=PATIENCE_S)}
        assert sequences >= {7, 8}
        assert not sequences & {2, 4}
        await _ask(there, f"{API}.STREAM.DELETE.{name}")


async def test_a_snapshot_that_is_not_whole_leaves_nothing(nc: Client, name: str) -> None:
    await _fill(nc, name, 50)
    saved, chunks = await _snapshot(nc, name)
    await _ask(nc, f"{API}.STREAM.DELETE.{name}")
    whole = b"".join(chunks)
    for part in (whole[: len(whole) // 2], whole[:-1], b"nothing of the kind" * 20):
        answer = await _restore(nc, name, saved, [part])
        assert answer["error"]["err_code"] == 10062
        missing = await _ask(nc, f"{API}.STREAM.INFO.{name}")
        assert missing["error"]["err_code"] == 10059
    answer = await _restore(nc, name, saved, chunks)
    assert answer["state"]["messages"] == saved["state"]["messages"]


async def test_a_client_that_does_not_answer_gets_no_more_than_its_window(nc: Client, name: str) -> None:
    await _fill(nc, name, 3000)
    sub = await nc.subscribe(f"snapshot.{name}")
    request = {"deliver_subject": sub.subject, "chunk_size": 4096, "window_size": 32 << 10}
    await _ask(nc, f"{API}.STREAM.SNAPSHOT.{name}", request)
    await eventually(lambda: sub.pending_msgs >= 4)
    for _ in range(20):  # no more may come, however many turns the server has
        await nc.flush(int(PATIENCE_S))
    assert sub.pending_msgs <= 16
    await sub.unsubscribe()


@pytest.mark.parametrize(
    ("origin", "target"), [(one, other) for one in KINDS for other in KINDS if "strandline" in (one, other)]
)
async def test_a_backup_as_the_nats_command_takes_it_is_whole(
    shared_servers: Callable[[str], NatsServer], origin: str, target: str
) -> None:
    """It listens to `_INBOX.….*`, and subscribes to the chunks' own subject below that after it got the answer."""
    name = f"BACKUP_{origin[:1]}{target[:1]}".upper()
    async with connected(shared_servers(origin).url) as here, connected(shared_servers(target).url) as there:
        await _fill(here, name, 400)
        loop = asyncio.get_running_loop()
        give_up = loop.time() + PATIENCE_S
        while True:
            inbox, begin = here.new_inbox(), loop.time()
            answers = await here.subscribe(f"{inbox}.*")
            request = {"deliver_subject": f"{inbox}.chunks", "chunk_size": 1024}
            body = json.dumps(request).encode()
            await here.publish(f"{API}.STREAM.SNAPSHOT.{name}", body, reply=f"{inbox}.answer")
            while (answer := await answers.next_msg(PATIENCE_S)).subject != f"{inbox}.answer":
                pass
            chunks = await here.subscribe(f"{inbox}.chunks", pending_bytes_limit=-1)
            await settled(here)
            if loop.time() - begin < 1.5 or loop.time() > give_up:  # both servers wait for two seconds only
                status, received = await _received(here, chunks)
                if status != "408":  # nor do they wait long for a client that stalls later
                    break
            await chunks.unsubscribe()
            await answers.unsubscribe()
        assert status == "204"
        before = await _shown(here, name)
        await _ask(here, f"{API}.STREAM.DELETE.{name}")
        saved = json.loads(answer.data)
        assert sum(map(len, received)) < saved["state"]["bytes"] / 2  # it is compressed
        assert "error" not in await _restore(there, name, saved, received)
        assert await _shown(there, name) == before
        await _ask(there, f"{API}.STREAM.DELETE.{name}")


def _archive(name: str, *entries: Archived) -> bytes:
    """Return an archive with one message after the entries."""
    state = {"messages": 1, "bytes": 30, "first_seq": 1, "last_seq": 1, "consumer_count": len(entries)}
    begin = Archived(b"state.json", 0, 0, b"", json.dumps(state).encode())
    return packed(begin, *entries, Archived(f"{name}.*".encode(), 10**18, 1, b"", b"x"))


def _consumer(entry: str, **config: object) -> Archived:
    plain = {"config": {"ack_policy": "explicit", **config}, "state": {}}
    return Archived(entry.encode(), 0, 0, b"", json.dumps(plain).encode())


async def _restored(client: Client, name: str, *entries: Archived) -> tuple[Any, Any]:
    config = {"name": name, "subjects": [f"{name}.>"], "storage": "file", "retention": "limits", "max_msgs": -1}
    config |= {"max_bytes": -1, "max_consumers": -1, "num_replicas": 1}
    answer = await _restore(client, name, {"config": config, "state": {}}, [_archive(name, *entries)])
    names = (await _ask(client, f"{API}.CONSUMER.NAMES.{name}")).get("consumers")
    return answer.get("error"), names


async def test_a_message_whose_subject_has_wildcards_can_be_published_and_so_it_is_restored(
    nc: Client, name: str
) -> None:
    assert await _restored(nc, name) == (None, [])
    assert (await nc.jetstream(timeout=PATIENCE_S).publish(f"{name}.>", b"y")).seq == 2
    shown = await _ask(nc, f"{API}.STREAM.INFO.{name}", {"subjects_filter": ">"})
    assert shown["state"]["subjects"] == {f"{name}.*": 1, f"{name}.>": 1}


@pytest.mark.parametrize(
    ("entry", "config", "found"),
    [
        ("consumers/C", {"durable_name": "C"}, "C"),
        ("consumers/C", {}, "C"),
        ("consumers/", {"durable_name": "X"}, "X"),
        ("consumers/", {"name": "X"}, "X"),
        ("consumers/C", {"durable_name": "D"}, "D"),
    ],
)
async def test_a_consumer_is_restored_under_its_own_name(
    nc: Client, name: str, entry: str, config: dict[str, object], found: str
) -> None:
    assert await _restored(nc, name, _consumer(entry, **config)) == (None, [found])


async def test_a_consumer_without_any_name_gets_one_that_nobody_has(nc: Client, name: str) -> None:
    refused, names = await _restored(nc, name, _consumer("consumers/"))
    assert refused is None
    assert len(names) == 1
    assert len(names[0]) == 8


@pytest.mark.parametrize(
    ("entry", "config", "problem"),
    [
        ("consumers/C", {"name": "D"}, 'failed to add consumer "C": Consumer Durable and Name have to be equal'),
        ("consumers/C", {"name": "C", "durable_name": "D"}, 'failed to add consumer "C": Consumer Durable and Name'),
        ("consumers/a.b", {"durable_name": "a.b"}, 'failed to add consumer "a.b": consumer '),
        ("consumers", {}, 'expected consumer, found "consumers"'),
        ("other/thing", {}, 'expected consumer, found "other/thing"'),
    ],
)
async def test_what_is_no_consumer_is_not_restored(
    nc: Client, name: str, entry: str, config: dict[str, object], problem: str
) -> None:
    refused, _ = await _restored(nc, name, _consumer(entry, **config))
    assert refused["err_code"] == 10062
    assert refused["description"].startswith(f"restore failed: {problem}")


async def test_a_snapshot_without_consumers_says_so_and_is_restored(
    shared_servers: Callable[[str], NatsServer], name: str
) -> None:
    async with connected(shared_servers("strandline").url) as here:
        await _fill(here, name, 20)
        sub = await here.subscribe(f"snapshot.{name}", pending_bytes_limit=-1)
        request = {"deliver_subject": sub.subject, "no_consumers": True}
        saved = await _ask(here, f"{API}.STREAM.SNAPSHOT.{name}", request)
        chunks = []
        while (message := await sub.next_msg(PATIENCE_S)).data:
            chunks.append(message.data)
        await _ask(here, f"{API}.STREAM.DELETE.{name}")
        for kind in KINDS:
            async with connected(shared_servers(kind).url) as there:
                assert "error" not in await _restore(there, name, saved, chunks)
                assert (await _ask(there, f"{API}.CONSUMER.NAMES.{name}"))["consumers"] == []
                await _ask(there, f"{API}.STREAM.DELETE.{name}")

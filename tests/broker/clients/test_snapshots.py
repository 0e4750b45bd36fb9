"""A stream with its consumers is moved from one server to another by a snapshot, whichever of the two it comes from."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from nats.aio.client import Client

from tests.broker.clients.servers import KINDS, connected, settled
from tests.servers_nats import NatsServer

API = "$JS.API"
CHUNK = 64 << 10
WINDOW = 256 << 10


async def _ask(client: Client, subject: str, payload: object = b"") -> Any:  # noqa: ANN401 - whatever JSON holds
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    answer = await client.request(subject, body, timeout=10)
    return json.loads(answer.data) if answer.data else None


async def _fill(client: Client, name: str, count: int) -> None:
    await _ask(client, f"{API}.STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "allow_direct": True})
    js = client.jetstream()
    for number in range(count):
        headers = {"Number": str(number)} if number % 3 else None
        await client.publish(f"{name}.{number % 7}", b"payload %d " % number * 20, headers=headers)
    await client.publish(f"{name}.large", b"ab" * 100_000)
    await settled(client)
    for sequence in (1, 9, 10):
        await _ask(client, f"{API}.STREAM.MSG.DELETE.{name}", {"seq": sequence})
    consumer = await js.pull_subscribe(f"{name}.>", "reader", stream=name)
    got = await consumer.fetch(5)
    await got[0].ack_sync()
    await got[2].ack_sync()
    await client.request(got[3].reply, b"-NAK", timeout=5)
    again = await consumer.fetch(1)
    assert again[0].metadata.num_delivered == 2


async def _snapshot(client: Client, name: str) -> tuple[Any, list[bytes]]:
    sub = await client.subscribe(f"snapshot.{name}", pending_bytes_limit=-1)
    request = {"deliver_subject": sub.subject, "chunk_size": CHUNK, "window_size": WINDOW}
    answer = await _ask(client, f"{API}.STREAM.SNAPSHOT.{name}", request)
    chunks: list[bytes] = []
    while True:
        message = await sub.next_msg(10)
        if not message.data:
            assert message.headers is None or message.headers.get("Status") == "204"
            return answer, chunks
        chunks.append(message.data)
        if message.reply:
            await client.publish(message.reply, b"")


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
        js = there.jetstream()
        assert (await js.publish(f"{name}.new", b"")).seq == 402
        consumer = await js.pull_subscribe(f"{name}.>", "reader", stream=name)
        sequences = {message.metadata.sequence.stream for message in await consumer.fetch(5)}
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
    await asyncio.sleep(0.3)
    assert 4 <= sub.pending_msgs <= 16
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
        inbox = f"{here.new_inbox()}"
        answers = await here.subscribe(f"{inbox}.*")
        loop = asyncio.get_running_loop()
        give_up = loop.time() + 60
        while True:
            begin = loop.time()
            request = {"deliver_subject": f"{inbox}.chunks", "chunk_size": 1024}
            body = json.dumps(request).encode()
            await here.publish(f"{API}.STREAM.SNAPSHOT.{name}", body, reply=f"{inbox}.answer")
            while (answer := await answers.next_msg(60)).subject != f"{inbox}.answer":
                pass
            chunks = await here.subscribe(f"{inbox}.chunks", pending_bytes_limit=-1)
            await settled(here)
            if loop.time() - begin < 1.5 or loop.time() > give_up:  # both servers wait for two seconds only
                break
            await chunks.unsubscribe()
        received = []
        while (chunk := await chunks.next_msg(60)).data:
            received.append(chunk.data)
            if chunk.reply:
                await here.publish(chunk.reply, b"")
        assert chunk.headers is not None
        assert chunk.headers["Status"] == "204"
        before = await _shown(here, name)
        await _ask(here, f"{API}.STREAM.DELETE.{name}")
        saved = json.loads(answer.data)
        assert sum(map(len, received)) < saved["state"]["bytes"] / 2  # it is compressed
        assert "error" not in await _restore(there, name, saved, received)
        assert await _shown(there, name) == before
        await _ask(there, f"{API}.STREAM.DELETE.{name}")

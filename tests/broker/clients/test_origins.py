"""Mirrors and sources by nats-py, of streams of the same server and of another one across a link of its own."""

from nats.aio.client import Client
from nats.js import JetStreamContext, api

from tests.broker.clients.servers import WITHIN_S, eventually


async def _filled(js: JetStreamContext, name: str, count: int = 6) -> None:
    await js.add_stream(name=name, subjects=[f"{name}.>"], allow_direct=True)
    for number in range(count):
        await js.publish(f"{name}.{number % 3}", b"%d" % number)


async def _messages(js: JetStreamContext, name: str) -> int:
    return (await js.stream_info(name)).state.messages


async def test_a_mirror_has_the_same_messages_and_sequences(js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    await js.delete_msg(name, 3)
    await js.add_stream(name=f"{name}-m", mirror=api.StreamSource(name=name), mirror_direct=True)
    await eventually(lambda: _has(js, f"{name}-m", 5))
    original, copy = await js.get_msg(name, 5), await js.get_msg(f"{name}-m", 5)
    assert (copy.subject, copy.data, copy.time) == (original.subject, original.data, original.time)
    await js.publish(f"{name}.0", b"later")
    await eventually(lambda: _has(js, f"{name}-m", 6))
    info = await js.stream_info(f"{name}-m")
    assert info.mirror
    assert (info.mirror.name, info.mirror.lag, info.state.last_seq) == (name, 0, 7)


async def _has(js: JetStreamContext, name: str, count: int) -> bool:
    return await _messages(js, name) == count


async def test_a_stream_gathers_from_several_others(js: JetStreamContext, name: str) -> None:
    for each in ("a", "b"):
        await _filled(js, f"{name}-{each}", 3)
    sources = [
        api.StreamSource(name=f"{name}-a"),
        api.StreamSource(
            name=f"{name}-b", subject_transforms=[api.SubjectTransform(src=f"{name}-b.1", dest=f"{name}-moved.1")]
        ),
    ]
    await js.add_stream(name=name, subjects=[f"{name}.own"], sources=sources)
    await js.publish(f"{name}.own", b"own")
    await eventually(lambda: _has(js, name, 5))
    found = (await js.stream_info(name, subjects_filter=">")).state.subjects or {}
    assert sorted(found) == sorted([*(f"{name}-a.{number}" for number in range(3)), f"{name}-moved.1", f"{name}.own"])
    moved = await js.get_last_msg(name, f"{name}-moved.1")
    assert (moved.headers or {})["Nats-Stream-Source"].startswith(f"{name}-b 2 ")


async def test_a_mirror_of_a_bucket_is_read_as_a_bucket(nc: Client, js: JetStreamContext, name: str) -> None:
    bucket = await js.create_key_value(bucket=name, direct=True)
    await bucket.put("a", b"1")
    await js.add_stream(name=f"KV_{name}-m", mirror=api.StreamSource(name=f"KV_{name}"), mirror_direct=True)
    await eventually(lambda: _has(js, f"KV_{name}-m", 1))
    answer = await nc.request(f"$JS.API.DIRECT.GET.KV_{name}.$KV.{name}.a", timeout=WITHIN_S)
    assert answer.data == b"1"


async def test_a_consumer_of_a_mirror(js: JetStreamContext, name: str) -> None:
    await _filled(js, name)
    await js.add_stream(name=f"{name}-m", mirror=api.StreamSource(name=name, filter_subject=f"{name}.1"))
    await eventually(lambda: _has(js, f"{name}-m", 2))
    await js.add_consumer(f"{name}-m", durable_name="c")
    subscription = await js.pull_subscribe_bind("c", f"{name}-m")
    fetched = await subscription.fetch(2, timeout=WITHIN_S)
    assert [(message.subject, message.metadata.sequence.stream) for message in fetched] == [
        (f"{name}.1", 2),
        (f"{name}.1", 5),
    ]

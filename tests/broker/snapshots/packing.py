"""Archives for tests, packed as they are sent."""

import json

from strandline.broker.snapshots.archive import END, MAGIC, Archived, format_entry
from strandline.broker.snapshots.s2 import BEGIN, format_chunks


def packed(*entries: Archived, end: bytes = END) -> bytes:
    """Return an archive."""
    return BEGIN + format_chunks(MAGIC + b"".join(map(format_entry, entries)) + end)


def saved_consumer(name: str = "C", /, *, mem_storage: bool = False, **state: object) -> Archived:
    """Return a consumer."""
    plain = {"config": {"durable_name": name, "ack_policy": "explicit", "mem_storage": mem_storage}, "state": state}
    return Archived(b"consumers/" + name.encode(), 0, 0, b"", json.dumps(plain).encode())


def messages(count: int, time_ns: int = 1) -> list[Archived]:
    """Return messages with the sequences from 1 on, all of one time."""
    return [Archived(b"S.a", time_ns, sequence, b"", b"x") for sequence in range(1, count + 1)]


def done_with(name: str, count: int, *, mem_storage: bool = False) -> Archived:
    """Return a consumer that has acknowledged so many messages."""
    place = {"consumer_seq": count, "stream_seq": count}
    return saved_consumer(name, mem_storage=mem_storage, delivered=place, ack_floor=place)

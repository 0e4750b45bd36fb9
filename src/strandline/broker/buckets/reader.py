"""Reads of a bucket directly from its stream in this process.

Invariants: a read sees every acknowledged write, and nothing that a crash could undo.
"""

from collections.abc import AsyncIterator, Callable, Sequence

from strandline.broker.buckets.server_link import Result, ServerLink, durable
from strandline.broker.buckets.update_columns import kind_of, values_of
from strandline.broker.streams import Messages, Stream, Ticket
from strandline.kv.entries import KvEntry, KvUpdate, Put, UpdateBatch, UpdateKind, format_revision, make_update
from strandline.kv.errors import BucketNotFound
from strandline.kv.keys import validate_key, validate_prefix
from strandline.kv.nats.layout import bucket_name, read_prefix
from strandline.kv.nats.messages import deadline_ns
from strandline.nats.streams import StreamState

SCAN_BATCH = 4_096


def filters_of(prefix: str, prefixes: Sequence[str]) -> tuple[str, ...]:
    """Return the filters of keys below some prefixes; `prefix` is the common prefix of the bucket's subjects."""
    return tuple(sorted({f"{prefix}{validate_prefix(each)}>" for each in prefixes}))


class EmbeddedReader:
    """The reader of a bucket; `server` returns the server, or raises."""

    def __init__(self, server: Callable[[], ServerLink], info: StreamState) -> None:
        self._server = server
        self._info = info

    async def get(self, key: str) -> KvEntry | None:
        """Return the key's current value, which may be empty; None if it has none or was deleted."""
        subject = self._subject(key)
        last = await self._read(lambda stream: stream.last(subject))
        if last is None or kind_of(last.headers) is not UpdateKind.PUT:
            return None
        expires_ns = deadline_ns(last.headers, last.time_ns)
        return KvEntry(key, last.payload, format_revision(last.sequence), last.time_ns, expires_ns)

    async def history(self, key: str) -> list[KvUpdate]:
        """Return the key's stored updates, oldest first, including deletes and purges."""
        subject = self._subject(key)
        found = await self._read(lambda stream: _all_of(stream, subject))
        return [
            make_update(kind_of(each.headers), key, format_revision(each.sequence), each.payload)
            for each in (found[at] for at in range(len(found)))
        ]

    async def keys(self, prefix: str = "") -> list[str]:
        """Return the keys with a value, by revision."""
        return [key async for batch in self.scan_batches(prefix) for key in batch.keys]

    async def scan(self, prefix: str = "") -> list[KvEntry]:
        """Return the current values, by revision, without their times."""
        return [
            KvEntry(update.key, update.value, update.version)
            async for batch in self.scan_batches(prefix)
            for update in batch.to_updates()
            if isinstance(update, Put)
        ]

    async def scan_batches(self, prefix: str = "") -> AsyncIterator[UpdateBatch]:
        """Yield the current values as columns of puts, by revision."""
        filters = filters_of(read_prefix(self._info), [prefix])
        size = len(read_prefix(self._info).encode(errors="surrogateescape"))
        left = await self._read(lambda stream: stream.last_per_subject(stream.filter(filters)))
        for start in range(0, len(left), SCAN_BATCH):
            part = left[start : start + SCAN_BATCH]
            batch = values_of(await self._read(lambda stream, part=part: stream.read(part)), size)  # type: ignore[misc]
            if len(batch):
                yield batch

    def _subject(self, key: str) -> str:
        return f"{read_prefix(self._info)}{validate_key(key)}"

    async def _read(self, work: Callable[[Stream], Result]) -> Result:
        """Run a read of the stream, and return its result once it is durable."""
        server = self._server()

        def read() -> tuple[Result, Ticket]:
            jetstream = server.jetstream
            jetstream.publish_gathered(jetstream.clock.now_ns())
            stream = jetstream.streams.streams.get(self._info.name)
            if stream is None:
                raise BucketNotFound(bucket_name(self._info.name))
            return work(stream), stream.barrier()

        found, ticket = await server.call(read)
        await durable(ticket)
        return found


def _all_of(stream: Stream, subject: str) -> Messages:
    matching = stream.filter((subject,))
    return stream.read(stream.next_sequences(matching, 1, max(1, stream.pending(matching, 1))))

"""Reads of a NATS bucket: one key from the stream's leader, many over a connection of their own.

Invariants: a read of one key is answered by the leader, so it sees every write that was acknowledged; replicas and
mirrors, which answer direct gets, may lag. Listings are read in the order of revisions, in a thread.
"""

from collections.abc import AsyncIterator, Callable, Iterator

from strandline.kv.entries import KvEntry, KvUpdate, Put, UpdateBatch, UpdateKind, format_revision, make_update
from strandline.kv.errors import error_from_code
from strandline.kv.keys import validate_key, validate_prefix
from strandline.kv.nats.bucket_api import NO_MESSAGE, BucketApi, Refused
from strandline.kv.nats.bucket_reader import read_keys, scan_bucket
from strandline.kv.nats.layout import read_prefix
from strandline.kv.nats.messages import StoredMessage, parse_stored
from strandline.kv.nats.thread_iterator import Exhausted, IsOver, ThreadIterator
from strandline.nats.cancellation import CancelToken
from strandline.nats.settings import NatsSettings
from strandline.nats.streams import StreamState


async def read_last(api: BucketApi, info: StreamState, key: str) -> StoredMessage | None:
    """Return the last message of a key, None if there is none."""
    return await _read(api, info, key, {"last_by_subj": f"{read_prefix(info)}{validate_key(key)}"})


async def _read(api: BucketApi, info: StreamState, key: str, request: dict[str, object]) -> StoredMessage | None:
    try:
        return parse_stored(await api.read(f"STREAM.MSG.GET.{info.name}", request))
    except Refused as refused:
        if refused.code == NO_MESSAGE:
            return None
        raise error_from_code(refused.code, refused.description, bucket=api.bucket, key=key) from None


class NatsReader:
    """The reader of a NATS bucket; `settings` returns how a connection of its own is made, or raises."""

    def __init__(self, api: BucketApi, info: StreamState, settings: Callable[[], NatsSettings]) -> None:
        self._api = api
        self._info = info
        self._settings = settings

    async def get(self, key: str) -> KvEntry | None:
        """Return the key's current value, which may be empty; None if it has none or was deleted."""
        last = await read_last(self._api, self._info, key)
        if last is None or last.kind is not UpdateKind.PUT:
            return None
        return KvEntry(key, last.value, format_revision(last.revision), last.created_ns, last.expires_ns)

    async def history(self, key: str) -> list[KvUpdate]:
        """Return the key's updates that are kept, oldest first, deletes and purges as what they are."""
        subject = f"{read_prefix(self._info)}{validate_key(key)}"
        updates: list[KvUpdate] = []
        last = await read_last(self._api, self._info, key)
        end, revision = 0 if last is None else last.revision, 0
        while revision < end:  # a key that is written all the time has no other end
            each = await _read(self._api, self._info, key, {"seq": revision + 1, "next_by_subj": subject})
            if each is None:
                break
            updates.append(make_update(each.kind, key, format_revision(each.revision), each.value))
            revision = each.revision
        return updates

    async def keys(self, prefix: str = "") -> list[str]:
        """Return the keys that have a value, in the order of their revisions."""
        validate_prefix(prefix)
        settings = self._settings()

        cancel = CancelToken()

        def produce(_is_over: IsOver) -> Iterator[list[str]]:
            yield read_keys(
                settings, self._api.bucket, prefixes=[prefix], subject_prefix=read_prefix(self._info), cancel=cancel
            )

        items = ThreadIterator(produce, "strandline-keys", cancel.set)
        try:
            return await items.take()
        finally:
            await items.stop()

    async def scan(self, prefix: str = "") -> list[KvEntry]:
        """Return the current values, in the order of their revisions; a scan does not read their times."""
        return [
            KvEntry(update.key, update.value, update.version)
            async for batch in self.scan_batches(prefix)
            for update in batch
            if isinstance(update, Put)
        ]

    async def scan_batches(self, prefix: str = "") -> AsyncIterator[UpdateBatch]:
        """Yield the current values as columns, in the order of their revisions; all of them are puts."""
        validate_prefix(prefix)
        settings = self._settings()

        cancel = CancelToken()

        def produce(_is_over: IsOver) -> Iterator[UpdateBatch]:
            yield from scan_bucket(
                settings, self._api.bucket, prefixes=[prefix], subject_prefix=read_prefix(self._info), cancel=cancel
            )

        items = ThreadIterator(produce, "strandline-scan", cancel.set)
        try:
            while True:
                yield await items.take()
        except Exhausted:
            return
        finally:
            await items.stop()

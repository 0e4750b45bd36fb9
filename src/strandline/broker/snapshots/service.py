"""Requests for STREAM.SNAPSHOT and STREAM.RESTORE, and the snapshots under way.

Invariants: nats-server 2.15 can restore a snapshot of ours, and we can restore a snapshot of it. The number of
snapshots under way is bounded, and each holds only its next chunk in memory, however large the stream is.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

from strandline.broker.advisories import Advisories
from strandline.broker.api import codes, responses
from strandline.broker.api.advisories import SnapshotCompleted, SnapshotCreated, new_id
from strandline.broker.api.codes import ApiError
from strandline.broker.api.error_text import for_clients
from strandline.broker.api.origins import is_subject
from strandline.broker.api.requests import SnapshotRequest
from strandline.broker.api.schema import from_json, to_json
from strandline.broker.consumers.registry import Registry
from strandline.broker.context import ServerContext
from strandline.broker.routes import Origin, Routes
from strandline.broker.snapshots.archive import CONSUMER_PREFIX, STATE_NAME, Archived
from strandline.broker.snapshots.archived_consumer import format_saved, saved
from strandline.broker.snapshots.restore_service import RestoreService
from strandline.broker.snapshots.snapshot_sender import SnapshotSender, pieces
from strandline.broker.streams.service import PREFIX, check_level
from strandline.broker.streams.stream import Stream
from strandline.errors import StrandlineError
from strandline.wire import has_wildcard

SNAPSHOT, RESTORE = "STREAM.SNAPSHOT.", "STREAM.RESTORE."
LOOK_NS = 1_000_000_000
SNAPSHOTS_MAX = 64
"""So many snapshots of an account may be under way."""


class SnapshotService:
    """The snapshots and restores of one account that are under way; `restored` receives each stream that came back."""

    def __init__(
        self,
        consumers: Registry,
        routes: Routes,
        advisories: Advisories,
        context: ServerContext,
        *,
        restored: Callable[[str], None],
    ) -> None:
        self._consumers = consumers
        self._streams = consumers.streams
        self._routes = routes
        self._advisories = advisories
        self._post = context.post
        self._senders: list[SnapshotSender] = []
        self._restores = RestoreService(consumers, routes, advisories, context, restored=restored)
        self._next_look_ns: int | None = None

    def open(self) -> None:
        """Remove what an earlier server left unfinished."""
        self._restores.open()

    def close(self) -> None:
        """Give up on everything under way."""
        for sender in self._senders:
            sender.stop()
        self._restores.close()

    def request(self, subject: str, headers: bytes, payload: bytes, origin: Origin, now_ns: int) -> bytes | None:
        """Answer a SNAPSHOT or a RESTORE; None if it is neither."""
        asked = subject.removeprefix(PREFIX)
        is_snapshot = asked.startswith(SNAPSHOT)
        name = asked.removeprefix(SNAPSHOT if is_snapshot else RESTORE)
        if not asked.startswith((SNAPSHOT, RESTORE)) or "." in name:
            return None
        failed = responses.StreamSnapshot if is_snapshot else responses.StreamRestoring
        try:
            check_level(headers)
            if payload.strip() in (b"", b"{}"):
                raise codes.BAD_REQUEST.error()
            self._look_soon(now_ns)
            return (self._snapshot if is_snapshot else self._restores.begin)(name, payload, origin, now_ns)
        except StrandlineError as error:
            self._streams.errors += 1
            kind = codes.STREAM_SNAPSHOT if is_snapshot else codes.STREAM_RESTORE
            return to_json(
                failed(error=error if isinstance(error, ApiError) else kind.with_text(err=for_clients(error)))
            )
        finally:
            self._streams.requests += 1

    # Out.

    def _snapshot(self, name: str, payload: bytes, origin: Origin, now_ns: int) -> bytes:
        request = from_json(SnapshotRequest, payload)
        stream = self._streams.find(name)
        if not is_subject(request.deliver_subject) or has_wildcard(request.deliver_subject):
            raise codes.SNAPSHOT_DELIVER_SUBJECT_INVALID.error()
        if stream.failure is not None:  # its messages may never have been stored
            raise stream.failure
        if len(self._senders) >= SNAPSHOTS_MAX:
            raise codes.STREAM_SNAPSHOT.with_text(err="too many snapshots are under way")
        state = stream.state(consumers=self._consumers.count(name))
        consumers = [] if request.no_consumers else self._consumers.shown(name)
        kept = replace(state, consumer_count=len(consumers))  # nats-server restores exactly so many
        begin = Archived(STATE_NAME, now_ns, 0, b"", to_json(kept))
        saved_ones = self._saved_consumers(stream, consumers, now_ns)
        content = pieces(stream, chain([begin], saved_ones), state.bytes // max(1, state.messages))
        client = self._advisories.client(origin)
        sender = SnapshotSender(
            name,
            request,
            content,
            self._routes,
            self._post,
            identity=new_id(),
            now_ns=now_ns,
            client=client,
            ended=self._sent,
        )
        self._senders.append(sender)
        self._post(sender.pump)
        self._advisories.tell(SnapshotCreated(name, state, client))
        return to_json(responses.StreamSnapshot(config=stream.config, state=state))

    def _saved_consumers(self, stream: Stream, names: list[str], now_ns: int) -> Iterator[Archived]:
        """Return consumers as they are at their entry, limited to the snapshot; removed ones as they were."""
        name, last_seq = stream.config.name, stream.durable_seq
        entries = [self._consumers.entry(name, each) for each in names]

        def each() -> Iterator[Archived]:
            for consumer, entry in zip(names, entries, strict=True):
                payload = format_saved(entry.config, saved(entry.state, last_seq))
                yield Archived(CONSUMER_PREFIX + consumer.encode(), now_ns, 0, b"", payload)

        return each()

    def _sent(self, sender: SnapshotSender, told: SnapshotCompleted) -> None:
        self._senders.remove(sender)
        end_ns = self._streams.clock.now_ns()
        self._advisories.tell(SnapshotCompleted(told.stream, told.start, end_ns, told.client))

    # Time.

    def tick(self, now_ns: int) -> None:
        """Give up on clients that say nothing more."""
        if self._next_look_ns is None or now_ns < self._next_look_ns:
            return
        for sender in list(self._senders):
            sender.tick(now_ns)
        self._restores.tick(now_ns)
        self._next_look_ns = now_ns + LOOK_NS if self._senders or self._restores.under_way else None

    @property
    def next_due_ns(self) -> int | None:
        """When `tick` has something to do, None if nothing is known of."""
        return self._next_look_ns

    def _look_soon(self, now_ns: int) -> None:
        self._next_look_ns = self._next_look_ns or now_ns + LOOK_NS

"""STREAM.SNAPSHOT and STREAM.RESTORE: streams with their consumers, sent to a client and taken back from one.

Invariants: what is sent can be restored here and by nats-server 2.15, and what that sends can be restored here. A
restore answers each of its chunks with nothing and the last, empty one with the stream, when that is durable. What an
account may use holds for what is restored, too, also while it comes. Whatever is wrong with a restore ends that one, is
answered, and leaves nothing behind; what it unpacks shares the loop with everybody, and meanwhile nothing more is read
from its client.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from strandline.broker.api import answers, codes
from strandline.broker.api.account import check_account
from strandline.broker.api.advisories import (
    Advisory,
    ClientInfo,
    RestoreCompleted,
    RestoreCreated,
    SnapshotCompleted,
    SnapshotCreated,
    new_id,
)
from strandline.broker.api.checks import check_stream
from strandline.broker.api.codes import ApiError
from strandline.broker.api.config import Storage, StreamConfig
from strandline.broker.api.origins import is_subject
from strandline.broker.api.reasons import for_clients
from strandline.broker.api.requests import InfoRequest, RestoreRequest, SnapshotRequest
from strandline.broker.api.schema import from_json, to_json
from strandline.broker.consumers.service import ConsumerService
from strandline.broker.routes import Origin, Routes
from strandline.broker.snapshots.archive import CONSUMER_PREFIX, STATE_NAME, Archived
from strandline.broker.snapshots.chunks import Chunk, RestoreSink
from strandline.broker.snapshots.consumers import format_saved, saved
from strandline.broker.snapshots.restoring import Restoring, forget_unfinished
from strandline.broker.snapshots.sending import Post, Sending, live_sequences, pieces
from strandline.broker.snapshots.turns import Turns
from strandline.broker.streams.service import PREFIX, check_level
from strandline.broker.streams.stream import Stream
from strandline.errors import StrandlineError
from strandline.wire import WireLimits, has_wildcard

logger = logging.getLogger("strandline.broker")
SNAPSHOT, RESTORE = "STREAM.SNAPSHOT.", "STREAM.RESTORE."
LOOK_NS = 1_000_000_000
PATIENCE_NS = 30_000_000_000
"""How long a restore waits for its next chunk."""
RESTORES_MAX = 64
"""So many restores of an account may be under way; each of them is a stream that is open."""
HELD_MAX = 256 << 20
"""So much of the memory the restores of an account may take together, about."""
CONSUMERS_MAX = 10_000
"""So many consumers come back with a stream: all of them are made at once."""


@dataclass(frozen=True, slots=True)
class SnapshotSurroundings:
    """Whom snapshots speak with.

    `restored` is called with the name of a stream that came back; between `pause` and `resume`, which are counted,
    nothing is read from a client; `limits` are those of what is published.
    """

    routes: Routes
    tell: Callable[[Advisory], None]
    post: Post
    client: Callable[[Origin], ClientInfo]
    restored: Callable[[str], None]
    pause: Callable[[int], None]
    resume: Callable[[int], None]
    limits: Callable[[], WireLimits]


class SnapshotService:
    """The snapshots and restores of one account that are under way."""

    def __init__(self, consumers: ConsumerService, around: SnapshotSurroundings) -> None:
        self._consumers = consumers
        self._streams = consumers.streams
        self._around = around
        self._sending: list[Sending] = []
        self._restores: dict[str, RestoreSink] = {}
        self._turns = Turns(self._streams.clock, around.post)
        self._next_look_ns: int | None = None

    def open(self) -> None:
        """Begin: what was left unfinished goes."""
        forget_unfinished(self._streams)

    def close(self) -> None:
        """Give up on everything under way."""
        for sending in self._sending:
            sending.stop()
        for sink in list(self._restores.values()):
            if sink.is_ending:
                self._drop(sink)  # what is put in its place is left to it
            else:
                self._give_up(sink)

    def request(self, subject: str, headers: bytes, payload: bytes, origin: Origin, now_ns: int) -> bytes | None:
        """Answer a SNAPSHOT or a RESTORE; None if it is neither."""
        asked = subject.removeprefix(PREFIX)
        is_snapshot = asked.startswith(SNAPSHOT)
        name = asked.removeprefix(SNAPSHOT if is_snapshot else RESTORE)
        if not asked.startswith((SNAPSHOT, RESTORE)) or "." in name:
            return None
        failed = answers.StreamSnapshot if is_snapshot else answers.StreamRestoring
        try:
            check_level(headers)
            if payload.strip() in (b"", b"{}"):
                raise codes.BAD_REQUEST.error()
            return (self._snapshot if is_snapshot else self._restore)(name, payload, origin, now_ns)
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
        if stream.failure is not None:  # what it is said to hold may never have been stored
            raise stream.failure
        state = stream.state(consumers=self._consumers.count(name))
        entries = [Archived(STATE_NAME, now_ns, 0, b"", to_json(state))]
        if not request.no_consumers:
            entries += self._saved_consumers(name, now_ns)
        content = pieces(stream, entries, live_sequences(stream), state.bytes // max(1, state.messages))
        client = self._around.client(origin)
        sending = Sending(
            name,
            request,
            content,
            self._around.routes,
            self._around.post,
            identity=new_id(),
            now_ns=now_ns,
            client=client,
            ended=self._sent,
        )
        self._sending.append(sending)
        self._look_soon(now_ns)
        self._around.post(sending.pump)
        self._around.tell(SnapshotCreated(name, state, client))
        return to_json(answers.StreamSnapshot(config=stream.config, state=state))

    def _saved_consumers(self, stream: str, now_ns: int) -> list[Archived]:
        return [
            Archived(CONSUMER_PREFIX + name.encode(), now_ns, 0, b"", format_saved(entry.config, saved(entry.state)))
            for name, entry in ((name, self._consumers.entry(stream, name)) for name in self._consumers.shown(stream))
        ]

    def _sent(self, sending: Sending, told: SnapshotCompleted) -> None:
        self._sending.remove(sending)
        end_ns = self._streams.clock.now_ns()
        self._around.tell(SnapshotCompleted(told.stream, told.start, end_ns, told.client))

    # In.

    def _restore(self, name: str, payload: bytes, origin: Origin, now_ns: int) -> bytes:
        request = from_json(RestoreRequest, payload)
        if request.config.name != name:
            raise codes.STREAM_MISMATCH.error()
        self._refuse_existing(name)
        config = self._checked(request.config)
        if len(self._restores) >= RESTORES_MAX:
            raise codes.STREAM_RESTORE.with_text(err="too many restores are under way")
        identity = new_id()
        restoring = Restoring(config, self._streams, identity, now_ns, self._around.limits())
        sink = RestoreSink(restoring, self._around.client(origin), self._take_chunk)
        subject = f"$JS.SNAPSHOT.RESTORE.{name}.{identity}"
        sink.cancel = self._around.routes.subscribe(subject.encode(), sink)
        sink.key = identity
        self._restores[identity] = sink
        self._look_soon(now_ns)
        self._around.tell(RestoreCreated(name, sink.client))
        return to_json(answers.StreamRestoring(deliver_subject=subject))

    def _refuse_existing(self, name: str) -> None:
        if name in self._streams.streams or name in self._streams.unreadable:
            raise codes.STREAM_NAME_EXIST_RESTORE_FAILED.error()

    def _checked(self, config: StreamConfig) -> StreamConfig:
        neighbours = self._streams.neighbours
        config = check_stream(config, neighbours)
        if config.num_replicas > 1:
            raise codes.STREAM_REPLICAS_NOT_SUPPORTED.error()
        if neighbours.overlaps(config.subjects, config.name):
            raise codes.STREAM_SUBJECT_OVERLAP.error()
        used = self._streams.used()
        ending = sum(sink.is_ending and sink.restoring.config.name != config.name for sink in self._restores.values())
        check_account(config, self._streams.limits, used._replace(streams=used.streams + ending))
        return config.with_level()

    def _check_room(self, config: StreamConfig) -> None:
        """Refuse more bytes than the account has room for, in streams and on their way to be some."""
        limits, is_memory = self._streams.limits, config.storage is Storage.MEMORY
        limit = limits.max_memory if is_memory else limits.max_storage
        coming = [sink.restoring for sink in self._restores.values() if sink.restoring.config.storage is config.storage]
        more = sum(restoring.stored_bytes for restoring in coming)
        if 0 <= limit < self._streams.used().bytes[config.storage] + more:
            raise (codes.MEMORY_RESOURCES_EXCEEDED if is_memory else codes.STORAGE_RESOURCES_EXCEEDED).error()

    def _check_memory(self, restoring: Restoring) -> None:
        limits = (restoring.config.max_consumers, self._streams.limits.max_consumers, CONSUMERS_MAX)
        if any(0 < limit < len(restoring.consumers) for limit in limits):
            raise codes.MAXIMUM_CONSUMERS_LIMIT.error()
        if sum(sink.restoring.held_bytes for sink in self._restores.values()) > HELD_MAX:
            raise codes.STREAM_RESTORE.with_text(err="too much is restored at once")

    def _take_chunk(self, sink: RestoreSink, chunk: Chunk) -> None:
        """Take a chunk of a restore, or its end, and answer it when it is done."""
        self._around.pause(chunk.client_id)
        sink.restoring.heard_ns = self._streams.clock.now_ns()
        sink.waiting.append(chunk)
        if len(sink.waiting) == 1:
            self._turns.add(self._work(sink))

    def _work(self, sink: RestoreSink) -> Iterator[None]:
        """Do what waits of a restore, in order; whatever comes of it, its senders are read from again."""
        try:
            while sink.waiting:
                chunk = sink.waiting[0]
                yield from self._unpack(sink, chunk.data)
                if not self._is_over(sink):
                    self._answer(sink, chunk)
                self._around.resume(sink.waiting.popleft().client_id)
                yield
        finally:
            while sink.waiting:
                self._around.resume(sink.waiting.popleft().client_id)

    def _is_over(self, sink: RestoreSink) -> bool:
        return sink.is_ending or sink.key not in self._restores

    def _unpack(self, sink: RestoreSink, data: bytes) -> Iterator[None]:
        restoring = sink.restoring
        if sink.problem is not None or self._is_over(sink):
            return
        try:
            for _ in restoring.feed(data):
                self._check_room(restoring.config)
                self._check_memory(restoring)
                yield
                if self._is_over(sink):
                    return
                restoring.heard_ns = self._streams.clock.now_ns()
            if not data:
                restoring.check_whole()
                self._check_memory(restoring)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told
            sink.problem = error
            restoring.abandon()

    def _answer(self, sink: RestoreSink, chunk: Chunk) -> None:
        if chunk.data:
            self._around.routes.send(chunk.reply, b"")
        elif sink.problem is not None:
            self._fail(sink, chunk.reply, sink.problem)
        else:
            self._finish(sink, chunk.reply)

    def _finish(self, sink: RestoreSink, reply: bytes) -> None:
        """Put the stream in its place, beside the loop if there is somebody to do it."""
        sink.is_ending = True
        name = sink.restoring.config.name
        try:
            self._refuse_existing(name)
            self._checked(sink.restoring.config)
            if self._streams.executor is None:
                stream = sink.restoring.finish()
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told
            self._fail(sink, reply, error)
            return
        if self._streams.executor is None:
            self._attach(sink, reply, stream)
            return
        self._streams.unreadable[name] = "it is being restored"

        def attach(found: Stream | BaseException) -> None:
            del self._streams.unreadable[name]
            if isinstance(found, Stream):
                self._attach(sink, reply, found)
            else:
                self._fail(sink, reply, found)

        def finish() -> None:
            found: Stream | BaseException
            try:
                found = sink.restoring.finish()
            except Exception as error:  # noqa: BLE001 - whatever it is, the client is told
                found = error
            self._around.post(lambda: attach(found))

        # A thread of its own: closing and opening streams waits for the executor.
        threading.Thread(target=finish, name=f"restore {name}", daemon=True).start()

    def _attach(self, sink: RestoreSink, reply: bytes, stream: Stream) -> None:
        name, now_ns = stream.config.name, self._streams.clock.now_ns()
        try:
            self._streams.attach(stream)
            for found in sink.restoring.consumers:
                self._consumers.restore(stream, found.name, found.config, found.where, now_ns)
            self._around.restored(name)
            answer = to_json(answers.StreamCreated(info=self._streams.info(stream, now_ns, request=InfoRequest())))
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told
            try:
                self._streams.delete(name)
            finally:
                self._fail(sink, reply, error)
            return
        self._drop(sink)
        self._around.routes.send(reply, answer)
        self._tell_restored(sink, now_ns)

    def _fail(self, sink: RestoreSink, reply: bytes, error: BaseException) -> None:
        self._streams.errors += 1
        if not isinstance(error, StrandlineError):
            logger.error("stream %s cannot be restored", sink.restoring.config.name, exc_info=error)
        refusal = error if isinstance(error, ApiError) else codes.STREAM_RESTORE.with_text(err=for_clients(error))
        self._around.routes.send(reply, to_json(answers.StreamCreated(error=refusal)))
        self._give_up(sink)
        self._tell_restored(sink, self._streams.clock.now_ns())

    def _tell_restored(self, sink: RestoreSink, now_ns: int) -> None:
        restoring = sink.restoring
        told = RestoreCompleted(
            restoring.config.name, restoring.start_ns, now_ns, restoring.byte_count, client=sink.client
        )
        self._around.tell(told)

    def _drop(self, sink: RestoreSink) -> None:
        self._restores.pop(sink.key, None)
        sink.cancel()

    def _give_up(self, sink: RestoreSink) -> None:
        self._drop(sink)
        sink.restoring.abandon()

    # Time.

    def tick(self, now_ns: int) -> None:
        """Give up on clients that say nothing more."""
        if self._next_look_ns is None or now_ns < self._next_look_ns:
            return
        for sending in list(self._sending):
            sending.tick(now_ns)
        for sink in list(self._restores.values()):
            if not sink.is_ending and now_ns - sink.restoring.heard_ns >= PATIENCE_NS:
                self._give_up(sink)
        self._next_look_ns = now_ns + LOOK_NS if self._sending or self._restores else None

    @property
    def next_due_ns(self) -> int | None:
        """When `tick` has something to do, None if nothing is known of."""
        return self._next_look_ns

    def _look_soon(self, now_ns: int) -> None:
        self._next_look_ns = self._next_look_ns or now_ns + LOOK_NS

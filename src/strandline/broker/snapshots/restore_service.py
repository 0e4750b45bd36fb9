"""STREAM.RESTORE: streams with their consumers, taken back from a client.

Invariants: a restore answers each chunk with an empty message, and the last, empty chunk with the stream when all of it
is durable. While the stream moves to its final folder, its name, subjects and room are reserved. The limits of an
account include streams that are being restored. An error ends that restore, is answered, and leaves nothing behind.
Unpacking, and opening consumers, share the loop with everything else; while a restore unpacks, the server reads nothing
more from its client. After `close` no restore goes on.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from strandline.broker.advisories import Advisories
from strandline.broker.api import codes, responses
from strandline.broker.api.advisories import ClientInfo, RestoreCompleted, RestoreCreated, new_id
from strandline.broker.api.checks import check_stream
from strandline.broker.api.codes import ApiError
from strandline.broker.api.config import Storage, StreamConfig
from strandline.broker.api.error_text import for_clients
from strandline.broker.api.requests import InfoRequest, RestoreRequest
from strandline.broker.api.schema import from_json, to_json
from strandline.broker.consumers.registry import Registry
from strandline.broker.consumers.restore import add_restored, announce_restored, drop_restored, settle_restored
from strandline.broker.context import ServerContext
from strandline.broker.routes import Cancel, Inbound, Origin, Routes
from strandline.broker.snapshots.restore import Restore, forget_unfinished
from strandline.broker.thread_runner import ThreadPerTask, ThreadRunner
from strandline.broker.work_queue import Steps, WorkQueue
from strandline.errors import StrandlineError

logger = logging.getLogger("strandline.broker")
PATIENCE_NS = 30_000_000_000
"""How long a restore waits for its next chunk."""
RESTORES_MAX = 64
"""So many restores of an account may be under way; each of them is a stream that is open."""
HELD_MAX = 256 << 20
"""So much of the memory the restores of an account may take together, about."""
CONSUMERS_MAX = 10_000
"""So many consumers come back with a stream."""


class Chunk(NamedTuple):
    """A piece of a restore; without data its end."""

    data: bytes
    reply: bytes
    client_id: int


class RestoreSink:
    """Takes the chunks of one restore."""

    def __init__(self, restore: Restore, client: ClientInfo, came: "Callable[[RestoreSink, Chunk], None]") -> None:
        self.restore = restore
        self.client = client
        self._came = came
        self.key = ""
        self.cancel: Cancel = lambda: None
        self.is_ending = False
        self.is_coming = False
        """Whether the name of its stream is reserved."""
        self.is_working = False
        """Whether the work queue has the chunks that wait."""
        self.waiting: deque[Chunk] = deque()
        self.problem: Exception | None = None
        """The error so far; the answer at the end reports it."""

    def take(self, messages: Inbound) -> None:
        """Take chunks, in order."""
        frames, client_id = messages.frames, messages.origin.client_id
        for payload, reply in zip(frames.payloads(), frames.replies(), strict=True):
            self._came(self, Chunk(payload, reply, client_id))


class RestoreService:
    """The restores of one account that are under way."""

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
        self._context = context
        self._restored = restored
        self.under_way: dict[str, RestoreSink] = {}
        self._queue = WorkQueue(
            self._streams.clock, lambda: context.post(self._queue.run), failure="a step of a restore failed"
        )
        self._threads = ThreadPerTask("strandline-restore")
        self._runner = ThreadRunner(None if self._streams.executor is None else self._threads, context.post)

    def open(self) -> None:
        """Remove what an earlier server left unfinished."""
        forget_unfinished(self._streams)

    def close(self) -> None:
        """Cancel everything under way; a stream that is in its final folder stays there."""
        for sink in self.under_way.values():
            sink.restore.stop()
        self._queue.close()
        self._threads.shutdown()  # a removal that was begun is not cancelled: its stream may be in its place
        self._runner.close()
        for sink in list(self.under_way.values()):
            self._drop(sink)
            self._let_in(sink)
            restore = sink.restore
            if restore.is_placed:
                drop_restored(self._consumers, restore.config.name)
                restore.close()
            else:
                restore.abandon()
        self._streams.coming.clear()

    def tick(self, now_ns: int) -> None:
        """Give up on clients that say nothing more."""
        for sink in list(self.under_way.values()):
            if not sink.is_ending and now_ns - sink.restore.heard_ns >= PATIENCE_NS:
                self._give_up(sink, lambda: None)

    # Beginning.

    def begin(self, name: str, payload: bytes, origin: Origin, now_ns: int) -> bytes:
        """Begin a restore; return where its chunks go."""
        request = from_json(RestoreRequest, payload)
        if request.config.name != name:
            raise codes.STREAM_MISMATCH.error()
        self._refuse_existing(name)
        config = self._checked(request.config)
        if len(self.under_way) >= RESTORES_MAX:
            raise codes.STREAM_RESTORE.with_text(err="too many restores are under way")
        identity = new_id()
        restore = Restore(config, self._streams, identity, now_ns, self._context.limits())
        sink = RestoreSink(restore, self._advisories.client(origin), self._take_chunk)
        subject = f"$JS.SNAPSHOT.RESTORE.{name}.{identity}"
        sink.cancel = self._routes.subscribe(subject.encode(), sink)
        sink.key = identity
        self.under_way[identity] = sink
        self._advisories.tell(RestoreCreated(name, sink.client))
        return to_json(responses.StreamRestoring(deliver_subject=subject))

    def _refuse_existing(self, name: str) -> None:
        streams = self._streams
        if name in streams.streams or name in streams.unreadable or name in streams.coming:
            raise codes.STREAM_NAME_EXIST_RESTORE_FAILED.error()

    def _checked(self, config: StreamConfig) -> StreamConfig:
        neighbours = self._streams.neighbours
        config = check_stream(config, neighbours)
        if config.num_replicas > 1:
            raise codes.STREAM_REPLICAS_NOT_SUPPORTED.error()
        if neighbours.overlaps(config.subjects, config.name):
            raise codes.STREAM_SUBJECT_OVERLAP.error()
        self._streams.check_room(config)
        return config.with_level()

    def _check_room(self, config: StreamConfig) -> None:
        """Refuse more bytes than the account has room for, in streams and on their way to be some."""
        limits, is_memory = self._streams.limits, config.storage is Storage.MEMORY
        limit = limits.max_memory if is_memory else limits.max_storage
        coming = [sink.restore for sink in self.under_way.values() if sink.restore.config.storage is config.storage]
        more = sum(restore.stored_bytes for restore in coming)
        is_full = 0 <= limit < self._streams.used().bytes[config.storage] + more
        if is_full or self._streams.shared_limits.room(config.storage, more) < more:
            raise (codes.MEMORY_RESOURCES_EXCEEDED if is_memory else codes.STORAGE_RESOURCES_EXCEEDED).error()

    def _check_memory(self, restore: Restore) -> None:
        limits = (restore.config.max_consumers, self._streams.limits.max_consumers, CONSUMERS_MAX)
        if any(0 < limit < len(restore.consumers) for limit in limits):
            raise codes.MAXIMUM_CONSUMERS_LIMIT.error()
        if sum(sink.restore.held_bytes for sink in self.under_way.values()) > HELD_MAX:
            raise codes.STREAM_RESTORE.with_text(err="restores use too much memory")

    # Chunks.

    def _take_chunk(self, sink: RestoreSink, chunk: Chunk) -> None:
        """Take a chunk of a restore, or its end, and answer it when it is done."""
        self._context.pause(chunk.client_id)
        sink.restore.heard_ns = self._streams.clock.now_ns()
        sink.waiting.append(chunk)
        if not sink.is_working:
            sink.is_working = True
            self._queue.add(self._work(sink))

    def _work(self, sink: RestoreSink) -> Steps:
        """Handle the waiting chunks of a restore in order; afterwards the server reads from their senders again."""
        try:
            while sink.waiting:
                chunk = sink.waiting[0]
                yield from self._unpack(sink, chunk.data)
                if not self._is_over(sink):
                    self._answer(sink, chunk)
                self._context.resume(sink.waiting.popleft().client_id)
                yield
        finally:
            sink.is_working = False
            self._let_in(sink)

    def _let_in(self, sink: RestoreSink) -> None:
        while sink.waiting:
            self._context.resume(sink.waiting.popleft().client_id)

    def _is_over(self, sink: RestoreSink) -> bool:
        return sink.is_ending or sink.key not in self.under_way

    def _unpack(self, sink: RestoreSink, data: bytes) -> Iterator[None]:
        restore = sink.restore
        if sink.problem is not None or self._is_over(sink):
            return
        try:
            for _ in restore.feed(data):
                self._check_room(restore.config)
                self._check_memory(restore)
                yield
                if self._is_over(sink):
                    return
                restore.heard_ns = self._streams.clock.now_ns()
            if not data:
                restore.check_whole()
                self._check_memory(restore)
        except Exception as error:  # noqa: BLE001 - the client receives it
            sink.problem = error
            self._remove(sink, lambda: None)

    def _answer(self, sink: RestoreSink, chunk: Chunk) -> None:
        if chunk.data:
            self._routes.send(chunk.reply, b"")
            return
        sink.is_ending = True
        if sink.problem is not None:
            self._fail(sink, chunk.reply, sink.problem)
        else:
            self._finish(sink, chunk.reply)

    # Ending.

    def _finish(self, sink: RestoreSink, reply: bytes) -> None:
        """Move the stream to its final folder, on another thread."""
        restore = sink.restore
        name = restore.config.name
        try:
            self._refuse_existing(name)
            self._checked(restore.config)
        except Exception as error:  # noqa: BLE001 - the client receives it
            self._fail(sink, reply, error)
            return
        self._streams.coming[name] = restore.config
        sink.is_coming = True

        def finished(failure: Exception | None) -> None:
            if failure is None:
                self._queue.add(self._bring_in(sink, reply))
            else:
                self._fail(sink, reply, failure)

        self._runner.run(restore.finish, finished)

    def _bring_in(self, sink: RestoreSink, reply: bytes) -> Steps:
        """Have the consumers of a stream that is in its place, then the stream, and answer."""
        restore, name = sink.restore, sink.restore.config.name
        found = list(restore.restored.values())
        try:
            yield from add_restored(self._consumers, restore.stream, found)
            answer = self._attach(restore)
        except Exception as error:  # noqa: BLE001 - the client receives it
            drop_restored(self._consumers, name)
            self._fail(sink, reply, error)
            return
        self._drop(sink)
        self._routes.send(reply, answer)
        self._tell_ended(sink)
        yield from announce_restored(self._consumers, name, found)

    def _attach(self, restore: Restore) -> bytes:
        stream, now_ns = restore.stream, self._streams.clock.now_ns()
        name = stream.config.name
        try:
            self._streams.attach(stream)
            self._restored(name)
            settle_restored(self._consumers, stream)
            info = self._streams.info(stream, now_ns, request=InfoRequest())
        except Exception:
            self._consumers.restoring.discard(name)
            restore.hand_over()
            self._streams.delete(name)
            raise
        restore.hand_over()
        return to_json(responses.StreamCreated(info=info))

    def _fail(self, sink: RestoreSink, reply: bytes, error: Exception) -> None:
        """Remove the files of a restore, then answer with the error."""
        self._streams.errors += 1
        if not isinstance(error, StrandlineError):
            logger.error("stream %s cannot be restored", sink.restore.config.name, exc_info=error)
        refusal = error if isinstance(error, ApiError) else codes.STREAM_RESTORE.with_text(err=for_clients(error))

        def tell() -> None:
            self._routes.send(reply, to_json(responses.StreamCreated(error=refusal)))
            self._tell_ended(sink)

        self._give_up(sink, tell)

    def _tell_ended(self, sink: RestoreSink) -> None:
        restore, now_ns = sink.restore, self._streams.clock.now_ns()
        told = RestoreCompleted(restore.config.name, restore.start_ns, now_ns, restore.byte_count, client=sink.client)
        self._advisories.tell(told)

    def _drop(self, sink: RestoreSink) -> None:
        self.under_way.pop(sink.key, None)
        sink.cancel()

    def _give_up(self, sink: RestoreSink, then: Callable[[], None]) -> None:
        def removed() -> None:
            self._drop(sink)
            if sink.is_coming:
                sink.is_coming = False
                self._streams.coming.pop(sink.restore.config.name, None)
            then()

        sink.is_ending = True
        self._remove(sink, removed)

    def _remove(self, sink: RestoreSink, then: Callable[[], None]) -> None:
        restore = sink.restore
        restore.forget()
        self._runner.run(restore.remove, lambda _: then())

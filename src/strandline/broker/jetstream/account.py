"""JetStream of one account: it takes publishes, requests and acknowledgements of clients to streams and consumers.

Invariants: everything runs on the server's own thread, and nothing blocks but creating and removing streams. Input is
handled in its order. Nothing is answered or delivered before it is as durable as asked. A stream whose storage fails
refuses publishes with the reason, is in `failures` until it works again, and affects no other stream.
"""

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING

from strandline.broker.advisories import Advisories
from strandline.broker.api.error_text import for_clients, for_log
from strandline.broker.api.responses import AccountLimits
from strandline.broker.consumers.registry import Registry
from strandline.broker.context import ServerContext
from strandline.broker.jetstream.completion_queue import CompletionLine, CompletionQueue
from strandline.broker.jetstream.consumer_scheduler import ConsumerScheduler, FlowSink
from strandline.broker.jetstream.inflight_bytes import ClientPauses, InflightBytes
from strandline.broker.jetstream.loss_reports import LossReports
from strandline.broker.jetstream.request_handler import RequestHandler
from strandline.broker.jetstream.stream_maintenance import StreamMaintenance
from strandline.broker.jetstream.stream_recovery import StreamRecovery, resume_consumers
from strandline.broker.jetstream.stream_sink import StreamSink, StreamSinks, Traces, traces_of
from strandline.broker.listeners import Listeners
from strandline.broker.mirrors import Mirrors
from strandline.broker.routes import Inbound, Origin, Routes
from strandline.broker.shutdown_hooks import ShutdownHooks
from strandline.broker.snapshots import SnapshotService
from strandline.broker.streams import Published, Removed, Republish, Stream
from strandline.broker.streams.service import StreamService
from strandline.broker.streams.storage import DONE
from strandline.broker.timers import Timers
from strandline.broker.work_queue import WorkQueue
from strandline.clock import Clock, SystemClock
from strandline.journal import SYNCED, Durability
from strandline.wire import FrameParser, Side, WireLimits, format_pub

if TYPE_CHECKING:
    from strandline.nats import NatsSettings

logger = logging.getLogger("strandline.broker")
_OWN_LIMITS = WireLimits(payload_bytes_max=1 << 30, line_bytes_max=1 << 20)


class JetStream:
    """The streams and consumers of one account."""

    def __init__(  # noqa: PLR0913 - everything that it stands between
        self,
        account: str,
        folder: Path | None,
        routes: Routes,
        context: ServerContext,
        *,
        clock: Clock | None = None,
        durability: Durability = SYNCED,
        domain: str = "",
        limits: AccountLimits | None = None,
        remotes: "Mapping[str, NatsSettings] | None" = None,
    ) -> None:
        pauses = ClientPauses(context.pause, context.resume)
        context = replace(context, pause=pauses.begin, resume=pauses.end)
        self.account = account
        self._wake, self._post = context.wake, context.post
        self.clock = clock or SystemClock()
        self.routes = routes
        self.domain = domain
        self.failures: dict[str, str] = {}
        self.streams = StreamService(
            folder=None if folder is None else folder / "streams",
            disk=context.disk,
            clock=self.clock,
            durability=durability,
            executor=context.executor,
            server_name=context.server_name,
            domain=domain,
            limits=limits or AccountLimits(),
            on_delete=self._removed,
            shared_limits=context.shared_limits,
        )
        self.completions = CompletionQueue(context.post)
        self.timers = Timers()
        self._maintenance = StreamMaintenance(self.timers, self.failures, stored=self.stored, fail=self.fail)
        self._recovery = StreamRecovery(
            self.streams,
            self.timers,
            self.completions,
            clock=self.clock,
            post=context.post,
            executor=context.executor,
            replaced=self._replace,
            recovered=self._recovered,
        )
        self._inflight = InflightBytes(context.pause, context.resume)
        self._reads = WorkQueue(
            self.clock,
            context.wake,
            failure="request failed",
            hold=context.pause,
            release=context.resume,
        )
        self._sinks = StreamSinks()
        self._dirty: list[StreamSink] = []
        self.listeners: Listeners[[]] = Listeners()
        """Called when a message of a stream is durable, and when a stream is opened again or removed."""
        self.shutdown = ShutdownHooks()
        advisories = Advisories(
            account,
            domain,
            context.server_name,
            self.clock,
            is_heard=lambda subject: routes.has_interest(subject) or bool(self._sinks.listening(subject)),
            publish=self.publish,
        )
        self.audit = advisories.audit
        self.bounded_s = 0.0
        """Processor time of the last `flush` for reads that clients asked for, which have a limit of their own."""
        self._loss_reports = LossReports(self.timers, advisories)
        self._scheduler = ConsumerScheduler(routes, self.timers, context.wake)
        self.consumers = self._scheduler.consumers = Registry(
            self.streams,
            routes,
            tell=advisories.tell,
            request_turn=self._scheduler.request_turn,
            post=context.post,
        )
        self.consumers.ended = self._scheduler.forget
        self.consumers.when_settled = lambda name, ticket, then: self.line(name).then(ticket, lambda _: then())
        self.mirrors = Mirrors(self.streams, wake=context.wake, post=context.post, stored=self.stored, remotes=remotes)
        self.mirrors.released = self.consumers.copied
        self.snapshots = SnapshotService(self.consumers, routes, advisories, context, restored=self.follow)
        requests = RequestHandler(self, self._reads)
        self._cancels = [
            routes.subscribe(requests.pattern, requests),
            routes.subscribe(b"$JS.ACK.>", self._scheduler),
            routes.subscribe(b"$JS.FC.>", FlowSink(self._scheduler)),
        ]

    def open(self) -> None:
        """Open everything that is kept."""
        self.snapshots.open()
        self.streams.open_all()
        for name, problem in self.streams.unreadable.items():
            self.failures[name] = problem
        for name in self.streams.streams:
            self.follow(name)
        self.mirrors.open()  # before consumers look for messages without interest
        self.consumers.open_all()

    def end_pulls(self) -> None:
        """End waiting pulls because the server ends; call it while clients are still connected."""
        self.consumers.end_pulls()

    def close(self) -> None:
        """Store gathered publishes, and release everything."""
        self.shutdown.end()
        for cancel in self._cancels:
            cancel()
        self.publish_gathered(self.clock.now_ns())
        for sink in self._sinks.values():
            sink.cancel()
        with contextlib.ExitStack() as rest:  # each of them, even if an earlier one fails
            for end in (self.completions.run, self.streams.close, self.consumers.close, self.snapshots.close):
                rest.callback(end)
            rest.callback(self._recovery.close)
            self.mirrors.close()

    # The commit cycle.

    def flush(self, now_ns: int) -> None:
        """Store the publishes that were gathered since the last cycle, then run copies and consumers."""
        self.bounded_s = 0.0
        self.publish_gathered(now_ns)
        began_s = thread_time()
        self._reads.run()
        self.bounded_s = thread_time() - began_s
        self.mirrors.flush(now_ns)
        self._scheduler.flush(now_ns)

    def let_consumers_go_on(self, now_ns: int) -> None:
        """Run consumers now: a later request sees the effect of earlier acknowledgements."""
        self._scheduler.flush(now_ns)

    def tick(self, now_ns: int) -> None:
        """Run the timers that are due."""
        self.timers.run(now_ns)
        self.consumers.tick(now_ns)
        self.snapshots.tick(now_ns)
        self.mirrors.tick(now_ns)

    @property
    def next_due_ns(self) -> int | None:
        """When `tick` has something to do, None if nothing is known of."""
        next_ns = self.timers.next_ns  # used in every cycle: the loop takes half the time of `min` over a generator
        for due_ns in (self.consumers.next_due_ns, self.snapshots.next_due_ns, self.mirrors.next_due_ns):
            if due_ns is not None and (next_ns is None or due_ns < next_ns):
                next_ns = due_ns
        return next_ns

    # Publishes.

    def _note(self, sink: StreamSink) -> None:
        self._dirty.append(sink)
        self._wake()

    def publish_gathered(self, now_ns: int) -> None:
        """Store the publishes so far; a later request sees them."""
        dirty, self._dirty = self._dirty, []
        for sink in dirty:
            try:
                self._publish_to(sink, now_ns)
            except Exception:  # the other streams are still served
                logger.exception(
                    "storing publishes in stream %s of account %s failed; they get no answer", sink.name, self.account
                )

    def _publish_to(self, sink: StreamSink, now_ns: int) -> None:
        if sink.is_gone:
            for messages in sink.let_go():
                if messages.trace is not None:
                    messages.trace.note_stream(sink.name, "stream not found")
                self._late(messages)
            return
        for batch, replies, gathered in sink.taken():
            try:
                published = sink.stream.publish(batch, now_ns)
            except Exception as error:  # noqa: BLE001 - the publishers receive it
                self._refuse(sink, replies, traces_of(gathered), error)
                continue
            self._settle(sink, published, replies, gathered)
        if not sink.has_chores or sink.expires:
            self._maintenance.touch(sink, now_ns)

    def _settle(self, sink: StreamSink, published: Published, replies: list[bytes], gathered: list[Inbound]) -> None:
        ticket, traces = published.ticket, traces_of(gathered)
        if not len(sink.line) and (ticket is DONE or ticket.done()):
            self._answer(sink, published, replies, traces, None if ticket is DONE else ticket.exception())
            return
        noted = self._inflight.add(gathered)

        def answer(error: BaseException | None) -> None:
            self._inflight.remove(noted)
            self._answer(sink, published, replies, traces, error)

        sink.line.then(published.ticket, answer)

    def _answer(
        self,
        sink: StreamSink,
        published: Published,
        replies: list[bytes],
        traces: Traces,
        error: BaseException | None,
    ) -> None:
        if error is not None:
            self._refuse(sink, replies, traces, error)
            return
        if traces:
            sink.tell_traces(traces, replies, published.answers)
        if not sink.stream.config.no_ack:
            self.routes.send_many(sink.acks(published, replies))
        self._tell_stored(sink, published)

    def _refuse(self, sink: StreamSink, replies: list[bytes], traces: Traces, error: BaseException) -> None:
        if not sink.is_gone:
            self.fail(sink.name, error)
        for _, trace in traces:
            trace.note_stream(sink.name, for_clients(error))
        self.routes.send_many(sink.refusals(replies, error))

    def fail(self, name: str, error: BaseException) -> None:
        """Note that a stream's storage has failed, and say so once."""
        if name not in self.failures:
            self.failures[name] = str(error)
            advice = "it can be read, and will be opened again when its disk works and has room"
            text = for_log(error, advice)
            logger.error("stream %s of account %s cannot store messages: %s", name, self.account, text)
        self._recovery.begin(name)

    def _recovered(self, name: str) -> None:
        """Note that a stream is well again."""
        self.failures.pop(name, None)
        logger.warning("stream %s of account %s stores again", name, self.account)
        self.follow(name)

    def stored(self, name: str, published: Published) -> None:
        """Notify consumers of messages that another part of the server put into a stream, when they are durable."""
        sink = self._sinks.get(name)
        if sink is None:
            return

        def tell(error: BaseException | None) -> None:
            if error is None:
                self._tell_stored(sink, published)
            elif not sink.is_gone:
                self.fail(name, error)

        sink.line.then(published.ticket, tell)
        self._maintenance.touch(sink, self.clock.now_ns())
        self._wake()  # the caller may be outside a cycle, after which timers are set

    def _tell_stored(self, sink: StreamSink, published: Published) -> None:
        for again in published.republish:
            self.publish(again)
        if not len(published.stored):
            return
        for consumer in self.consumers.of(sink.name):
            consumer.note_stored()
        self.mirrors.note_stored(sink.name)
        self.listeners.tell(sink.name)

    def _tell_removed(self, name: str, removed: Removed) -> None:
        for consumer in self.consumers.of(name):
            try:
                consumer.note_removed(removed)
            except Exception:  # the other consumers are still notified
                logger.exception("consumer %s of stream %s failed to handle removed messages", consumer.name, name)

    def publish(self, message: Republish) -> None:
        """Publish something of the server's own, to clients and to streams that keep such subjects."""
        self.routes.send(message.subject, message.payload, headers=message.headers)
        if self._sinks.listening(message.subject):
            self.take(_inbound(message.subject, message.payload, message.headers, Origin(0, self.account)))

    def take(self, messages: Inbound) -> None:
        """Take one message to the streams that keep its subject; without any, it has no responders."""
        sinks = self._sinks.listening(messages.subjects[0])
        for sink in sinks:
            sink.take(messages)
        if not sinks:
            self._late(messages)

    def _late(self, messages: Inbound) -> None:
        if messages.subjects[0].startswith(b"$JS."):
            return  # it was a request, too, and is answered as such
        self.routes.no_responders(messages, list(range(len(messages))))

    # Streams.

    def line(self, name: str) -> CompletionLine:
        """Return the completion line of a stream; for a removed stream, an empty one."""
        sink = self._sinks.get(name)
        return sink.line if sink is not None else CompletionLine(self.completions)

    def follow(self, name: str) -> None:
        """Subscribe to the subjects of a stream after it was created or changed."""
        stream = self.streams.streams.get(name)
        self.mirrors.changed(name)
        if stream is None:
            return
        sink = self._sinks.get(name)
        if sink is None:
            sink = self._sinks[name] = StreamSink(
                name,
                stream,
                CompletionLine(self.completions),
                self._note,
                self._late,
                self.routes.send_many,
                self.domain,
            )
            self._observe(stream)
            self._sinks.changed()
        if sink.subjects != stream.config.subjects:
            sink.listen(stream.config.subjects, self.routes)
            self._sinks.changed()
        self._maintenance.changed(sink, self.clock.now_ns())
        self._loss_reports.begin(stream, self.clock.now_ns())

    def _observe(self, stream: Stream) -> None:
        """Observe removals and failures of a stream."""
        name = stream.config.name

        def failed(error: BaseException) -> None:
            if self.streams.streams.get(name) is stream:
                self.fail(name, error)

        stream.add_listener(lambda removed: self._tell_removed(name, removed))
        stream.on_failed(lambda error: self._post(lambda: failed(error)))

    def _replace(self, stream: Stream) -> None:
        """Go on with a stream in the place of itself, as it was before it failed."""
        name = stream.config.name
        self._scheduler.flush(self.clock.now_ns())  # consumers handle their acknowledgements before they change
        self.streams.replace(stream)
        self._sinks[name].stream = stream
        self._observe(stream)
        self.mirrors.changed(name)
        resume_consumers(self.consumers, stream)
        self.listeners.tell(name)

    def _removed(self, name: str) -> None:
        """Unsubscribe from a stream that is being removed; answers that wait for its tickets are still sent."""
        sink = self._sinks.pop(name, None)
        if sink is None:
            return
        sink.is_gone = True
        sink.cancel()
        self._recovery.end(name)
        self.failures.pop(name, None)
        self._sinks.changed()
        self.listeners.tell(name)
        self._maintenance.end(name)
        self._loss_reports.end(name)


def _inbound(subject: bytes, payload: bytes, headers: bytes, origin: Origin, reply: bytes = b"") -> Inbound:
    """Return a message of the server's own in the form in which the parser hands out messages of clients."""
    frames = FrameParser(Side.CLIENT, _OWN_LIMITS).feed(format_pub(subject, payload, reply, headers))
    return Inbound(frames, [subject], origin)

"""Routes, a disk and a turn for tests of JetStream: what is sent is kept, and durability comes when a test says so."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from strandline.broker.context import ServerContext
from strandline.broker.jetstream import JetStream
from strandline.broker.routes import Cancel, Deliveries, Inbound, Origin, Sink
from strandline.clock import ManualClock
from strandline.files import Disk, OsDisk
from strandline.journal import SYNCED, Durability
from strandline.wire import FrameParser, Side, format_pubs, subject_matches

Message = tuple[str, bytes]


class FakeRoutes:
    """Takes what is sent, and brings what is published to sinks."""

    def __init__(self) -> None:
        self.sinks: list[tuple[bytes, Sink]] = []
        self.sent: list[Message] = []
        self.lonely: list[str] = []
        self.listened: set[bytes] = set()
        self.matched: set[bytes] = set()
        """Those of them that somebody only listens to by a pattern."""
        self.watchers: list[tuple[bytes, Callable[[], None]]] = []
        self.deaf = False

    def subscribe(self, pattern: bytes | Sequence[bytes], sink: Sink) -> Cancel:
        """Let a sink hear what is published."""
        entries = [(each, sink) for each in ((pattern,) if isinstance(pattern, bytes) else pattern)]
        self.sinks += entries

        def cancel() -> None:
            self.sinks = [each for each in self.sinks if each not in entries]

        return cancel

    def has_interest(self, subject: bytes, queue: bytes = b"") -> bool:
        """Tell whether a test said that somebody listens, or somebody has asked for an answer there."""
        del queue
        return subject in self.listened

    def has_subscription(self, subject: bytes, queue: bytes = b"") -> bool:
        """Tell whether a test said that a client listens, and not by a wildcard."""
        del queue
        return subject in self.listened - self.matched

    def watch_interest(self, subject: bytes, changed: Callable[[], None]) -> Cancel:
        """Call somebody when a test says that a client begins to listen."""
        watcher = (subject, changed)
        self.watchers.append(watcher)
        return lambda: self.watchers.remove(watcher) if watcher in self.watchers else None

    def listen(self, subject: str) -> None:
        """Have a client subscribe to a subject."""
        self.listened.add(subject.encode())
        self.matched.discard(subject.encode())
        for watched, changed in list(self.watchers):
            if watched == subject.encode():
                changed()

    def room(self, subject: bytes) -> int:
        """Have room."""
        del subject
        return 8 << 20

    def when_room(self, subject: bytes, go_on: Callable[[], None]) -> None:
        """Have room always."""

    def send(self, subject: bytes, payload: bytes, *, reply: bytes = b"", headers: bytes = b"") -> bool:
        """Keep a message; one without a payload by its headers."""
        del reply
        self.sent.append((subject.decode(), payload or headers))
        return True

    def send_many(self, messages: Deliveries) -> None:
        """Keep messages; those without a payload by their headers."""
        headers = messages.headers or [b""] * len(messages)
        rows = zip(messages.subjects, messages.payloads, headers, strict=True)
        self.sent += [(subject.decode(), payload or block) for subject, payload, block in rows]

    def deliver(self, to: bytes, messages: Deliveries, queue: bytes = b"") -> int:
        """Keep messages of a consumer."""
        del queue
        self.sent += [(to.decode(), payload) for payload in messages.payloads]
        return len(messages)

    def no_responders(self, messages: Inbound, rows: Sequence[int]) -> None:
        """Keep who was told that nobody responds."""
        self.lonely += [messages.frames.replies()[row].decode() for row in rows]

    def publish(self, *messages: tuple[str, bytes, str], client: int = 1, headers: bytes = b"") -> None:
        """Publish messages of a client: subject, payload, and where the answer goes."""
        for subject, payload, reply in messages:
            self._listen(reply)
            data = format_pubs([(subject.encode(), reply.encode(), headers, payload)])
            found = [sink for pattern, sink in self.sinks if subject_matches(pattern.decode(), subject)]
            for sink in dict.fromkeys(found):
                sink.take(Inbound(FrameParser(Side.CLIENT).feed(data), [subject.encode()], Origin(client, "A")))

    def publish_together(self, *messages: tuple[str, bytes, str]) -> None:
        """Publish messages of a client that came with one read, all for the sinks of the first."""
        for _, _, reply in messages:
            self._listen(reply)
        data = format_pubs([(subject.encode(), reply.encode(), b"", payload) for subject, payload, reply in messages])
        frames = FrameParser(Side.CLIENT).feed(data)
        for pattern, sink in self.sinks:
            if subject_matches(pattern.decode(), messages[0][0]):
                sink.take(Inbound(frames, [subject.encode() for subject, _, _ in messages], Origin(1, "A")))

    def _listen(self, reply: str) -> None:
        if reply and not self.deaf:
            self.listened.add(reply.encode())

    def take(self) -> list[Message]:
        """Return what was sent since the last time."""
        sent, self.sent = self.sent, []
        return sent


class Held(Executor):
    """Does nothing until it is told to: what was queued for the disk waits."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: object, **kwargs: object) -> Future[Any]:
        """Keep it for later."""
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - it is the future's to tell
                future.set_exception(error)

        self.waiting.append(work)
        return future

    def run(self) -> None:
        """Do what waits."""
        while self.waiting:
            self.waiting.pop(0)()


class FakeAccount:
    """JetStream of an account, with its context in a test's hands."""

    def __init__(
        self,
        folder: Path | None,
        *,
        durability: Durability = SYNCED,
        domain: str = "",
        executor: Executor | None = None,
        inline: bool = False,
        disk: Disk | None = None,
    ) -> None:
        self.routes = FakeRoutes()
        self.disk = Held()
        self.clock = ManualClock()
        self.posted: list[Callable[[], None]] = []
        self.paused: list[int] = []
        self.wakes = 0
        self.jetstream = JetStream(
            "A",
            folder,
            self.routes,
            ServerContext(
                wake=self._wake,
                post=self.posted.append,
                pause=self.paused.append,
                resume=self.paused.remove,
                executor=None if inline else executor or self.disk,
                disk=disk or OsDisk(),
            ),
            clock=self.clock,
            durability=durability,
            domain=domain,
        )
        self.jetstream.open()

    def _wake(self) -> None:
        self.wakes += 1

    def turn(self) -> None:
        """Have a turn."""
        self.jetstream.flush(self.clock.now_ns())

    def settle(self) -> None:
        """Let the disk do what it was asked for, and hear of it."""
        self.disk.run()
        while self.posted:
            self.posted.pop(0)()

    def ask(self, asked: str, payload: object = b"") -> dict[str, Any]:
        """Ask something, let the disk work, and return the answer."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.routes.publish((f"$JS.API.{asked}", body, "answer"))
        self.settle()
        found = [payload for subject, payload in self.routes.take() if subject == "answer"]
        assert len(found) == 1, found
        answer: dict[str, Any] = json.loads(found[0])
        return answer

    def stream(self, name: str, *subjects: str, **config: object) -> None:
        """Make a stream."""
        answer = self.ask(f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects or [name], **config})
        assert "error" not in answer, answer

    def close(self) -> None:
        """Close; the disk does what it is asked for at once."""
        self.disk.run()
        self.disk.submit = _at_once  # type: ignore[method-assign]
        self.jetstream.close()


def _at_once(fn: Callable[..., Any], /, *args: object, **kwargs: object) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(fn(*args, **kwargs))
    return future

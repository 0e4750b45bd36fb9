"""An account with streams and mirrors, its turns taken by hand."""

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from strandline.broker.api.config import StreamConfig
from strandline.broker.api.requests import parse_config
from strandline.broker.mirrors import Mirrors
from strandline.broker.streams import Message, PublishBatch, Published, Stream
from strandline.broker.streams.service import StreamService
from strandline.clock import Clock, SystemClock
from strandline.journal import WRITTEN, Durability
from strandline.nats import NatsSettings
from tests.waiting import PATIENCE_S


class MirrorAccount:
    """A server's account without the server."""

    def __init__(
        self,
        folder: Path | None = None,
        remotes: Mapping[str, NatsSettings] | None = None,
        *,
        durability: Durability = WRITTEN,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.service = StreamService(folder, durability=durability, clock=self.clock)
        self.service.open_all()
        self.is_awake = False
        self.posted: deque[Callable[[], None]] = deque()
        self.told: list[tuple[str, Published]] = []
        self.mirrors = Mirrors(
            self.service, wake=self._wake, post=self.posted.append, stored=self._stored, remotes=remotes
        )
        self.mirrors.open()

    def _wake(self) -> None:
        self.is_awake = True

    def _stored(self, name: str, published: Published) -> None:
        self.told.append((name, published))
        self.mirrors.note_stored(name)

    def create(self, name: str, **fields: object) -> Stream:
        """Make a stream as a request would."""
        config, _ = parse_config(json.dumps({"name": name, **fields}).encode())
        stream = self.service.create(config)
        self.mirrors.changed(name)
        return stream

    def update(self, name: str, **fields: object) -> None:
        """Change a stream as a request would."""
        answer = self.service.request(
            f"$JS.API.STREAM.UPDATE.{name}", b"", json.dumps({"name": name, **fields}).encode(), self.clock.now_ns()
        )
        assert isinstance(answer, bytes)
        assert b'"error"' not in answer, answer
        self.mirrors.changed(name)

    def delete(self, name: str) -> None:
        """Remove a stream."""
        self.service.delete(name)
        self.mirrors.changed(name)

    def publish(self, name: str, *subjects: str, payload: bytes = b"x", headers: bytes = b"") -> Published:
        """Publish to a stream, durably, as a turn would."""
        batch = PublishBatch([subject.encode() for subject in subjects], [payload] * len(subjects))
        if headers:
            batch.headers = [headers] * len(subjects)
        published = self.service.streams[name].publish(batch, self.clock.now_ns())
        published.ticket.result()
        self.mirrors.note_stored(name)
        return published

    def turn(self) -> bool:
        """Take one turn; return whether there was something to do."""
        while self.posted:
            self.posted.popleft()()
        self.mirrors.tick(self.clock.now_ns())
        awake, self.is_awake = self.is_awake, False
        if awake:
            self.mirrors.flush(self.clock.now_ns())
        return awake

    def settle(self) -> None:
        """Take turns until there is nothing more to do."""
        while self.turn():
            pass

    def until(self, reached: Callable[[], bool]) -> None:
        """Take turns until something is so."""
        stop = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < stop, "it did not come to be"
            if not self.turn():
                time.sleep(0.002)

    def until_last(self, sequence: int, *names: str) -> None:
        """Take turns until streams have come to a sequence."""
        self.until(lambda: all(self.service.streams[name].last_seq >= sequence for name in names))

    def messages(self, name: str) -> list[Message]:
        """Return everything that a stream holds."""
        stream = self.service.streams[name]
        found = [stream.get(sequence) for sequence in range(max(1, stream.first_seq), stream.last_seq + 1)]
        return [message for message in found if message is not None]

    def info(self, name: str) -> Any:  # noqa: ANN401 - an answer's JSON
        """Return what STREAM.INFO tells."""
        answer = self.service.request(f"$JS.API.STREAM.INFO.{name}", b"", b"", self.clock.now_ns())
        assert isinstance(answer, bytes)
        return json.loads(answer)

    def close(self) -> None:
        """End everything in order."""
        self.mirrors.close()
        self.service.close()

    def config(self, name: str) -> StreamConfig:
        """Return a stream's configuration."""
        return self.service.streams[name].config

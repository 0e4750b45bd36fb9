"""The streams and consumers of a server: nats-server's or the broker's, by the JetStream API.

Invariants: nothing is created, changed or acknowledged; a message is looked at by its sequence, and no consumer moves.
"""

import base64
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from strandline.nats import JetStreamApi, NatsSettings
from strandline.nats.socket import NatsSocket
from strandline.web.polling import Need, Polled, Series

TIMEOUT_S = 5.0
LAG_NOTED = 10_000
_PAGES_MAX = 200


@dataclass(frozen=True)
class ConsumerFacts:
    """A consumer: what waits for it, what it was given and has not answered, and what it was given again."""

    name: str
    pending: int
    unanswered: int
    redelivered: int
    delivered: int
    floor: int
    is_paused: bool


@dataclass(frozen=True)
class StreamFacts:
    """A stream and its consumers."""

    name: str
    subjects: tuple[str, ...]
    messages: int
    bytes: int
    first: int
    last: int
    deleted: int
    consumers: tuple[ConsumerFacts, ...]

    @property
    def lag(self) -> int:
        """Return how many messages wait for the slowest consumer."""
        return max((one.pending + one.unanswered for one in self.consumers), default=0)


@dataclass(frozen=True)
class Seen:
    """A message of a stream."""

    sequence: int
    subject: str
    time: str
    headers: bytes
    data: bytes


class ServerPart(Polled[tuple[StreamFacts, ...]]):
    """A server with its streams."""

    def __init__(self, settings: NatsSettings, *, every_s: float = 1.0) -> None:
        super().__init__("streams", settings.addresses, self._look, every_s=every_s)
        self._settings = settings
        self._last: dict[str, Series] = {}
        self._lag: dict[str, Series] = {}

    def needs(self) -> list[Need]:
        """Return what needs a person."""
        return [
            Need(f"stream {stream.name}: a consumer is {stream.lag:,} messages behind", "/streams")
            for stream in self.value or ()
            if stream.lag >= LAG_NOTED
        ]

    def rate(self, stream: str) -> float | None:
        """Return the messages that a stream takes in a second, of late."""
        return self._last[stream].rate() if stream in self._last else None

    def published(self, stream: str) -> list[tuple[float, float]]:
        """Return the last sequence of a stream over time."""
        return self._last[stream].points() if stream in self._last else []

    def lag(self, consumer: str) -> list[tuple[float, float]]:
        """Return how far `STREAM` or `STREAM/CONSUMER` is behind, over time."""
        return self._lag[consumer].points() if consumer in self._lag else []

    def message(self, stream: str, sequence: int) -> Seen:
        """Return a message by its sequence."""
        with NatsSocket.connect(self._settings, timeout_s=TIMEOUT_S) as socket:
            api = JetStreamApi(socket, self._settings.api_prefix)
            told = api.call(f"STREAM.MSG.GET.{stream}", {"seq": sequence}, stream, TIMEOUT_S)["message"]
        headers, data = (base64.b64decode(told.get(name, "")) for name in ("hdrs", "data"))
        return Seen(int(told["seq"]), str(told["subject"]), str(told["time"]), headers, data)

    def _look(self) -> tuple[StreamFacts, ...]:
        with NatsSocket.connect(self._settings, timeout_s=TIMEOUT_S) as socket:
            api = JetStreamApi(socket, self._settings.api_prefix)
            found = tuple(_stream(one, api) for one in _listed(api, "STREAM.LIST", "streams", ""))
        now = time.monotonic()
        for stream in found:
            self._last.setdefault(stream.name, Series()).add(now, stream.last)
            self._lag.setdefault(stream.name, Series()).add(now, stream.lag)
            for one in stream.consumers:
                self._lag.setdefault(f"{stream.name}/{one.name}", Series()).add(now, one.pending + one.unanswered)
        return tuple(sorted(found, key=lambda stream: stream.name))


def _listed(api: JetStreamApi, subject: str, key: str, stream: str) -> Iterator[Mapping[str, Any]]:
    """Yield all entries of a listing, page by page."""
    offset = 0
    for _ in range(_PAGES_MAX):
        told = api.call(subject, {"offset": offset}, stream, TIMEOUT_S)
        rows = told.get(key) or []
        yield from rows
        offset += len(rows)
        if not rows or offset >= int(told.get("total", 0)):
            return


def _stream(told: Mapping[str, Any], api: JetStreamApi) -> StreamFacts:
    name, state = str(told["config"]["name"]), told["state"]
    consumers = _listed(api, f"CONSUMER.LIST.{name}", "consumers", name) if state.get("consumer_count") else ()
    return StreamFacts(
        name=name,
        subjects=tuple(told["config"].get("subjects") or ()),
        messages=int(state["messages"]),
        bytes=int(state["bytes"]),
        first=int(state["first_seq"]),
        last=int(state["last_seq"]),
        deleted=int(state.get("num_deleted", 0)),
        consumers=tuple(sorted(map(_consumer, consumers), key=lambda one: one.name)),
    )


def _consumer(told: Mapping[str, Any]) -> ConsumerFacts:
    return ConsumerFacts(
        name=str(told["name"]),
        pending=int(told.get("num_pending", 0)),
        unanswered=int(told.get("num_ack_pending", 0)),
        redelivered=int(told.get("num_redelivered", 0)),
        delivered=int(told.get("delivered", {}).get("stream_seq", 0)),
        floor=int(told.get("ack_floor", {}).get("stream_seq", 0)),
        is_paused=bool(told.get("paused")),
    )

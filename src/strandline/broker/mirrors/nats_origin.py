"""A stream of another server, read as nats-server's own mirrors read it: by a push consumer of its own.

Invariants: messages follow without a gap from the requested start, and the stream is the same before and after its
consumer was created. Anything else is an error, or `OriginEnded`, and ends the delivery.
"""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from strandline.broker.api.times import format_time
from strandline.broker.mirrors.copy_plan import CopyPlan, Start
from strandline.broker.mirrors.source_names import short_hash
from strandline.broker.streams import OriginBatch
from strandline.clock import NS_PER_S
from strandline.errors import Unavailable
from strandline.nats import CancelToken, ConsumerSpec, Delivered, JetStreamApi, NatsSettings, NatsSocket, ReadPlan
from strandline.nats.errors import DeliveryBroken
from strandline.nats.push_consumer import PushConsumer
from strandline.nats.socket import new_inbox
from strandline.wire import Times, binary_list

HEARTBEAT_S = 1.0
ACK_WAIT_S = 22 * 3600
INACTIVE_S = 10.0

Ask = Callable[[bytes], Start]
"""Where to begin in an origin of this identity."""


class OriginEnded(Unavailable):
    """The delivery of an origin broke; it can begin again."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the delivery of the origin broke: {problem}", hint="the mirror reconnects by itself")


@dataclass(slots=True)
class Received:
    """Messages of an origin, or a heartbeat; and how many messages wait behind them."""

    batch: OriginBatch | None
    pending: int


class Origin(Protocol):
    """A connection to an origin."""

    def follow(self, ask: Ask) -> Iterator[Received]:
        """Yield messages as they come, and signs of life."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class NatsOrigin:
    """An origin on a NATS server."""

    def __init__(self, settings: NatsSettings, plan: CopyPlan, copy: str, cancel: CancelToken) -> None:
        self._settings = settings
        self._plan = plan
        self._copy = copy
        self._cancel = cancel
        self._attachment: PushConsumer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._attachment is not None:
            self._attachment.close()

    def follow(self, ask: Ask) -> Iterator[Received]:
        """Yield messages as they arrive, and about one empty result for each heartbeat."""
        with NatsSocket.connect(self._settings, cancel=self._cancel) as connection:
            api = JetStreamApi(connection, self._settings.api_prefix)
            identity = self._identity(api)
            attachment = self._attachment = self._attach(api, ask(identity))
            if self._identity(api) != identity:
                raise OriginEnded("the stream was created again")
        yield Received(None, attachment.pending)
        try:
            while True:
                delivered = attachment.receive(HEARTBEAT_S)
                batch = None if delivered is None else _to_batch(delivered, identity)
                yield Received(batch, attachment.pending)
        except DeliveryBroken as broken:
            raise OriginEnded(broken.problem) from broken

    def _identity(self, api: JetStreamApi) -> bytes:
        name = self._plan.source.name
        return short_hash(str(api.call(f"STREAM.INFO.{name}", None, name)["created"])).encode()

    def _attach(self, api: JetStreamApi, start: Start) -> PushConsumer:
        name = self._plan.source.name
        connection = NatsSocket.connect(self._settings, cancel=self._cancel)
        try:
            inbox = new_inbox()
            connection.subscribe(inbox)
            connection.flush()
            request = {"stream_name": name, "config": self._consumer(inbox, start), "action": ""}
            answer = api.call(f"CONSUMER.CREATE.{name}", request, name)
            spec = ConsumerSpec(str(answer["name"]), inbox, self._plan.filters, start.sequence)
        except BaseException:
            connection.close()
            raise
        reading = ReadPlan(stream=name, after=0, times=Times.ALL, heartbeat_s=HEARTBEAT_S)
        return PushConsumer(connection, reading, spec, int(answer.get("num_pending", 0)))

    def _consumer(self, inbox: str, start: Start) -> dict[str, Any]:
        """Return the consumer's configuration: that of nats-server's mirrors."""
        kind = "JS_MIRROR" if self._plan.is_mirror else "JS_SRC"
        filters = self._plan.filters
        config: dict[str, Any] = {
            "name": f"{kind}_{short_hash(self._copy)}_{secrets.token_hex(4)}",
            "deliver_subject": inbox,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": start.sequence,
            "ack_policy": "none",
            "ack_wait": ACK_WAIT_S * NS_PER_S,
            "max_deliver": 1,
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT_S * NS_PER_S),
            "inactive_threshold": int(INACTIVE_S * NS_PER_S),
            "num_replicas": 1,
            "mem_storage": True,
            "direct": True,
            "sourcing": True,
            **({"filter_subject": filters[0]} if len(filters) == 1 else {}),
            **({"filter_subjects": list(filters)} if len(filters) > 1 else {}),
        }
        if start.time_ns is not None:
            del config["opt_start_seq"]
            config |= {"deliver_policy": "by_start_time", "opt_start_time": format_time(start.time_ns)}
        return config


def _to_batch(delivered: Delivered, identity: bytes) -> OriginBatch:
    count = len(delivered)
    times = delivered.times_ns if delivered.times_ns is not None else np.zeros(count, np.int64)
    headers = [b""] * count if delivered.headers is None else binary_list(delivered.headers)
    return OriginBatch(
        delivered.sequences,
        times,
        binary_list(delivered.subjects),
        headers,
        binary_list(delivered.payloads),
        identity=identity,
    )

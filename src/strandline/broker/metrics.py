"""What a server says of itself to Prometheus and to probes.

Invariants: the state of a server belongs to its loop, so it is asked there; a loop that does not answer in time is a
failed scrape and a failed check. Ephemeral consumers are summed up under one name, because their own are random.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from strandline.broker.monitoring.jetstream import healthz
from strandline.broker.monitoring.query import parse_target
from strandline.metrics import Health, Metric, MetricSource, Sample, counter, gauge

if TYPE_CHECKING:
    from strandline.broker.jetstream import JetStream
    from strandline.broker.server import Server

ANSWER_WITHIN_S = 5.0
EPHEMERAL = "(ephemeral)"
_PREFIX = "strandline_broker"
Answer = TypeVar("Answer")


def ask(loop: asyncio.AbstractEventLoop, question: Callable[[], Answer], within_s: float = ANSWER_WITHIN_S) -> Answer:
    """Return the answer to a question that the thread of a loop is asked; `TimeoutError` if it gives none in time."""
    answer: Future[Answer] = Future()

    def run() -> None:
        with contextlib.suppress(asyncio.InvalidStateError):
            try:
                found = question()
            except BaseException as error:  # noqa: BLE001 - raised where it was asked
                answer.set_exception(error)
            else:
                answer.set_result(found)

    loop.call_soon_threadsafe(run)
    return answer.result(within_s)


def server_metrics(server: "Server") -> MetricSource:
    """Return what tells how a server is doing; call it on another thread than the server's."""
    return lambda: ask(server.loop, lambda: list(loop_metrics(server)))


def server_health(server: "Server") -> Health:
    """Return the checks of a server: its loop answers; its streams store, and are whole."""

    def loop() -> str | None:
        try:
            ask(server.loop, lambda: None)
        except TimeoutError:
            return f"the server does not answer within {ANSWER_WITHIN_S:g} s"
        return None

    def jetstream() -> str | None:
        _, fields = ask(server.loop, lambda: healthz(server, parse_target("/healthz")))
        return None if fields["status"] == "ok" else str(fields["error"])

    def leaving() -> str | None:
        return "the server is leaving (lame duck)" if server.is_leaving else None

    return Health(live={"loop": loop}, ready={"jetstream": jetstream, "clients": leaving})


def loop_metrics(server: "Server") -> Iterator[Metric]:
    """Yield what a server says of itself; on its loop's thread."""
    routers = {name: account.router for name, account in server.accounts.by_name.items()}
    yield gauge(f"{_PREFIX}_connections", "Clients that are connected.", server.connection_count)
    yield counter(f"{_PREFIX}_connections_total", "Clients that have connected.", server.total_connections)
    subscribed = [Sample(router.subscription_count, {"account": name}) for name, router in routers.items()]
    yield Metric(f"{_PREFIX}_subscriptions", "gauge", "Subscriptions.", subscribed)
    for name, attribute, text in (
        ("received_messages", "in_msgs", "Messages from clients."),
        ("received_bytes", "in_bytes", "Bytes of messages from clients."),
        ("sent_messages", "out_msgs", "Messages to clients."),
        ("sent_bytes", "out_bytes", "Bytes of messages to clients."),
    ):
        moved = [Sample(getattr(router, attribute), {"account": account}) for account, router in routers.items()]
        yield Metric(f"{_PREFIX}_{name}_total", "counter", text, moved)
    yield server.syncs.metric(f"{_PREFIX}_sync_duration_seconds", "How long syncs of files took.")
    accounts = list(server.jetstreams.values())
    yield _each(accounts, "api_requests_total", "Requests to JetStream's API.", lambda each: each.streams.requests)
    yield _each(accounts, "api_errors_total", "Requests that were refused.", lambda each: each.streams.errors)
    yield from _stream_metrics(accounts)
    yield from _consumer_metrics(accounts, server.clock.now_ns())


def _each(accounts: Iterable["JetStream"], name: str, text: str, value: Callable[["JetStream"], float]) -> Metric:
    samples = [Sample(value(each), {"account": each.account}) for each in accounts]
    return Metric(f"{_PREFIX}_{name}", "counter", text, samples)


_STREAM_TEXTS = {
    "messages": "Messages of a stream.",
    "bytes": "Bytes of a stream.",
    "first_sequence": "The first message.",
    "last_sequence": "The last message.",
    "consumers": "Consumers of a stream.",
    "lost_messages": "Messages that damage took, and whose loss is not accepted.",
    "failed": "1 while a stream cannot store.",
    "offline_consumers": "Consumers that cannot be served.",
}


def _stream_metrics(accounts: Iterable["JetStream"]) -> Iterator[Metric]:
    rows: dict[str, list[Sample]] = {name: [] for name in _STREAM_TEXTS}
    for each in accounts:
        for name, stream in each.streams.streams.items():
            state, labels = stream.state(), {"account": each.account, "stream": name}
            values = {
                "messages": state.messages,
                "bytes": state.bytes,
                "first_sequence": state.first_seq,
                "last_sequence": state.last_seq,
                "consumers": each.streams.consumer_count(name),
                "lost_messages": len(stream.losses.sequences),
                "failed": name in each.failures,
                "offline_consumers": sum(of == name for of, _ in each.consumers.unreadable),
            }
            for part, value in values.items():
                rows[part].append(Sample(value, labels))
    for part, samples in rows.items():
        yield Metric(f"{_PREFIX}_stream_{part}", "gauge", _STREAM_TEXTS[part], samples)


_CONSUMER_TEXTS = {
    "pending_messages": "Messages that a consumer has not delivered.",
    "ack_pending_messages": "Messages that are delivered and not acknowledged.",
    "redelivered_messages": "Messages that are not acknowledged and were delivered more than once.",
    "waiting_pulls": "Requests of clients that wait for messages.",
    "ack_floor_sequence": "The stream's sequence up to which all is acknowledged.",
}


def _consumer_metrics(accounts: Iterable["JetStream"], now_ns: int) -> Iterator[Metric]:
    rows: dict[str, Counter[tuple[str, str, str]]] = {name: Counter() for name in _CONSUMER_TEXTS}
    for each in accounts:
        service = each.consumers
        for stream in each.streams.streams:
            for name in service.shown(stream):
                info = service.info(service.entry(stream, name), now_ns, listed=True)
                shown = name if info.config.durable_name else EPHEMERAL
                key = (each.account, stream, shown)
                rows["pending_messages"][key] += info.num_pending
                rows["ack_pending_messages"][key] += info.num_ack_pending
                rows["redelivered_messages"][key] += info.num_redelivered
                rows["waiting_pulls"][key] += info.num_waiting
                if shown != EPHEMERAL:
                    rows["ack_floor_sequence"][key] = info.ack_floor.stream_seq
    for part, values in rows.items():
        samples = [
            Sample(value, {"account": account, "stream": stream, "consumer": name})
            for (account, stream, name), value in values.items()
        ]
        yield Metric(f"{_PREFIX}_consumer_{part}", "gauge", _CONSUMER_TEXTS[part], samples)

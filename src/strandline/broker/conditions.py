"""Conditions of a server's streams, for alarms."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from strandline.alarms import Condition
from strandline.broker.metrics import ask
from strandline.broker.streams.registry import loss_problem

if TYPE_CHECKING:
    from strandline.broker.server import Server

LOST = "stream_lost_messages"


def server_conditions(server: "Server") -> Iterable[Condition]:
    """Return which streams have lost messages, and which have not; on another thread than the server's."""
    return ask(server.loop, lambda: list(loop_conditions(server)))


def loop_conditions(server: "Server") -> Iterable[Condition]:
    """Yield a condition for each stream; on the thread of the server's loop."""
    for jetstream in server.jetstreams.values():
        for name, stream in jetstream.streams.streams.items():
            lost = len(stream.losses.sequences)
            problem = f"stream {name}: {loss_problem(stream)}" if lost else None
            where = f"{server.store_dir}: {jetstream.account}/{name}"
            yield Condition(LOST, where, problem, key=str(lost), details={"messages": lost, "stream": name})

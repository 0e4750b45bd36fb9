"""Consumers of a stream that was opened anew: they go on with it as after a restart of the server.

Invariants: a consumer goes on where it was, or where the stream ends now, if that is before; what it knows stays in
memory, so its own files need not be read. Pulls that wait are ended, so that clients pull again.
"""

from strandline.broker.consumers.loader import SHUTDOWN
from strandline.broker.consumers.registry import Registry
from strandline.broker.streams import Stream
from strandline.errors import StrandlineError


def go_on(consumers: Registry, stream: Stream) -> None:
    """Let the consumers of a stream go on with what took its place."""
    name, now_ns = stream.config.name, consumers.streams.clock.now_ns()
    entries = consumers.entries.get(name, {})
    consumers.begin(stream)
    for entry in entries.values():
        old, state = entry.consumer, entry.state
        consumers.drop(entry, SHUTDOWN)
        state.take_back()
        try:
            new = consumers.add(
                stream, entry.config, entry.created_ns, state, now_ns, is_kept=entry.is_kept, name=old.name
            )
        except StrandlineError as error:
            consumers.entries[name][old.name] = entry  # where `lose` looks for it
            consumers.loading.lose(old, error)
        else:
            new.consumer.history = old.history
    consumers.settle(stream)

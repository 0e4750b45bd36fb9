"""Where publishes go: the sinks of an account's streams, and which of them keep a subject.

Invariants: what is remembered of subjects is right until a stream is made, changed or removed, which `changed` is told
of, and is bounded.
"""

from strandline.broker.jetstream.stream_sink import StreamSink
from strandline.wire import matcher

LISTENERS_MAX = 10_000


class Sinks(dict[str, StreamSink]):
    """The sinks of an account, by stream."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: dict[bytes, list[StreamSink]] = {}

    def listening(self, subject: bytes) -> list[StreamSink]:
        """Return those that keep a subject."""
        found = self._listeners.get(subject)
        if found is None:
            if len(self._listeners) >= LISTENERS_MAX:
                self._listeners.clear()
            text = subject.decode(errors="surrogateescape")
            found = [sink for sink in self.values() if matcher(sink.subjects)(text)]
            self._listeners[subject] = found
        return found

    def changed(self) -> None:
        """Forget which of them keep what."""
        self._listeners.clear()

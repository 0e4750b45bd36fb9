"""Buckets and streams for tests of reading in bulk: made and filled quickly, over a connection of their own."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from strandline.nats import JetStreamApi, NatsSocket
from strandline.nats.settings import NatsSettings
from strandline.wire import format_headers, format_pubs
from tests.waiting import PATIENCE_S

DELETED = format_headers([("KV-Operation", "DEL")])
PURGED = format_headers([("KV-Operation", "PURGE"), ("Nats-Rollup", "sub")])


class Filler:
    """Makes and fills one stream."""

    def __init__(self, api: JetStreamApi, stream: str, prefix: str) -> None:
        self.api = api
        self.stream = stream
        self.prefix = prefix

    def put(self, keys: Iterable[str], value: bytes = b"value", headers: bytes = b"") -> int:
        """Publish a value for each key, wait until all are stored, and return the last sequence."""
        goal = self.last
        rows = []
        for key in keys:
            rows.append(((self.prefix + key).encode(errors="surrogateescape"), b"", headers, value))
            goal += 1
        for start in range(0, len(rows), 5000):
            self.api.connection.send(format_pubs(rows[start : start + 5000]))
            self._wait(goal - len(rows) + start)
        self._wait(goal)
        return goal

    def _wait(self, goal: int) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while self.last < goal:
            assert time.monotonic() < give_up, "it was not stored"
            time.sleep(0.001)

    @property
    def last(self) -> int:
        """Return the last sequence of the stream."""
        return self.api.stream(self.stream).last

    def purge(self, **what: object) -> None:
        """Remove messages: all, or as the API's request says."""
        self.api.call(f"STREAM.PURGE.{self.stream}", what or None, self.stream)

    def delete(self) -> None:
        """Remove the stream."""
        self.api.call(f"STREAM.DELETE.{self.stream}", None, self.stream)

    def create(self, **config: object) -> None:
        """Make the stream as a bucket is made, but for what is given."""
        whole = {
            "name": self.stream,
            "subjects": [f"{self.prefix}>"],
            "max_msgs_per_subject": 1,
            "discard": "new",
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        }
        self.api.call(f"STREAM.CREATE.{self.stream}", whole | config, self.stream)


@contextmanager
def filled_bucket(settings: NatsSettings, bucket: str, **config: object) -> Iterator[Filler]:
    """Make a bucket and yield what fills it."""
    with NatsSocket.connect(settings) as connection:
        filler = Filler(JetStreamApi(connection, settings.api_prefix), f"KV_{bucket}", f"$KV.{bucket}.")
        filler.create(**config)
        yield filler

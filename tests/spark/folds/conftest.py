"""Streams and buckets of a real server, one for each test."""

from collections.abc import Iterator

import pytest

from strandline.spark.streams.options import Target
from tests.servers_nats import NatsServer
from tests.spark.streams.helpers import ServerLog


@pytest.fixture
def stream(nats_server: NatsServer, nats_bucket: str) -> Iterator[ServerLog]:
    """Give a test a stream of its own."""
    world = ServerLog(nats_server.url, Target("stream", nats_bucket))
    yield world
    world.close()


@pytest.fixture
def bucket(nats_server: NatsServer, nats_bucket: str) -> Iterator[ServerLog]:
    """Give a test a bucket of its own that keeps one value of each key."""
    world = ServerLog(nats_server.url, Target("bucket", nats_bucket))
    yield world
    world.close()

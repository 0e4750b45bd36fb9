"""A snapshot that nats-server made and compressed."""

from tests.broker.conversations import FIXTURES

REAL = (FIXTURES / "nats-server-2.15.1-snapshot.s2").read_bytes()

"""Tests of buckets on a real nats-server."""

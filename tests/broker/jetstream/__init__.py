"""Tests of JetStream between routes and streams."""

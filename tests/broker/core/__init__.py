"""Core NATS, as pure code and beside a real nats-server."""

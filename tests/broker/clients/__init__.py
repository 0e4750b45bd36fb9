"""Ordinary clients against a real nats-server and against ours: the same tests, neither is told whom it talks to."""

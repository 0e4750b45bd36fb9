"""The same bytes sent to a real nats-server and to ours: the same bytes come back, ids and times aside."""

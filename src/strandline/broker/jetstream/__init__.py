"""JetStream of an account: it takes messages and requests of clients to streams and consumers, and answers them.

**Promise.** Nothing is answered or delivered before it is as durable as asked, and answers keep their order. A stream
whose storage fails refuses with its reason; other streams go on.

**How.** `stream_sink` gathers the publishes of all clients while the sockets of a commit cycle are read; one append for
each stream stores them when the cycle ends. Answers then wait for the append's ticket (`completion_queue`), and so do
the answers to requests (`request_handler`). `consumer_scheduler` lets consumers deliver, `stream_maintenance` expires
and compacts streams, `inflight_bytes` pauses clients that publish faster than the disk writes, and `stream_recovery`
opens streams again whose storage failed.
"""

from strandline.broker.jetstream.account import JetStream

__all__ = ["JetStream"]

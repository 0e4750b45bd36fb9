"""Buckets on NATS servers: JetStream's key-value buckets, shared with every other NATS client.

**Promise.** What `strandline.kv` promises, on a real server: a watch tells every update after its cursor once and in
order over reconnects, restarts and changes of leader, or says `CursorExpired`; a lost answer is never taken for a
refusal; every operation has a time limit.

**Parts.** `settings` and `logins` say where and as whom; `connection` has the life of a connection and creates buckets;
`link` and `calls` carry requests over a nats-py client and turn codes into errors; `reader`, `writer` and `watches` are
the roles of a bucket; `streams` and `messages` are the conventions, pure. `bulk` reads many updates as columns over
connections of its own, without nats-py and without asyncio.

**Trade-offs.** One key is read from the stream's leader, not from the nearest replica: a read sees every write that was
acknowledged, and costs a little more.
"""

from strandline.kv.nats.connection import NatsConnection, NatsStore
from strandline.kv.nats.logins import Login
from strandline.kv.nats.settings import NatsSettings

__all__ = ["Login", "NatsConnection", "NatsSettings", "NatsStore"]

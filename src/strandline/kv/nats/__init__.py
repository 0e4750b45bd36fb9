"""Buckets on NATS servers: JetStream's key-value buckets, shared with every other NATS client.

**Promise.** What `strandline.kv` promises, on a real server: a watch tells every update after its cursor once and in
order over reconnects, restarts and changes of leader, or says `CursorExpired`; a lost answer is never taken for a
refusal; every operation has a time limit.

**Parts.** `connection` has the life of a connection and creates buckets; `bucket_api` sends the requests of a bucket
and turns codes into errors; `reader`, `writer` and `watches` are the roles of a bucket; `layout` and `messages` are the
conventions of buckets in streams, pure. `bucket_reader` reads many updates as columns, over a connection of its own.
Settings, logins, sockets and the ordered reader are `strandline.nats`.

**Trade-offs.** One key is read from the stream's leader, not from the nearest replica: a read sees every write that was
acknowledged, and costs a little more.
"""

from strandline.kv.nats.connection import NatsConnection, NatsStore
from strandline.nats.logins import Login
from strandline.nats.settings import NatsSettings

__all__ = ["Login", "NatsConnection", "NatsSettings", "NatsStore"]
